"""Learning rate as a closed form of the global step: no state to save, lose or step twice."""

from __future__ import annotations

import math

from anchorcontext.config.schema import OptimConfig


def learning_rate(optim: OptimConfig, step: int, steps: int) -> float:
    """Learning rate of a step.

    Args:
        step: from 1, the step that is about to be taken.
        steps: steps of the whole run.

    Warm-up rises linearly: step s of w takes s/w of the peak. `linear` and `cosine` then fall, so
    that they would reach 0 one step after the last: no step is wasted on a rate of 0.
    """
    if step <= optim.warmup_steps:
        return optim.lr * step / optim.warmup_steps
    done = (step - 1 - optim.warmup_steps) / (steps - optim.warmup_steps)
    match optim.schedule:
        case "constant":
            return optim.lr
        case "linear":
            return optim.lr * (1 - done)
        case "cosine":
            return optim.lr * (1 + math.cos(math.pi * done)) / 2
    raise ValueError(f"optim.schedule={optim.schedule!r} is not one of constant, linear, cosine")
