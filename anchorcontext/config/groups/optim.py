"""Group `optim`: AdamW and its schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from omegaconf import MISSING

from anchorcontext.config.rules import number, one_of
from anchorcontext.errors import Problem


@dataclass
class OptimConfig:
    """AdamW and its learning rate schedule."""

    lr: float = number(MISSING, 0, open_low=True)
    """Peak learning rate."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    """Decay rates per step of AdamW's running means of gradients and of squared gradients; each at least 0 and
    less than 1."""
    eps: float = number(1e-8, 0, open_low=True)
    """Added to the denominator of AdamW's update, so that it is never 0."""
    weight_decay: float = number(0.1, 0)
    """Decoupled weight decay: each step takes this share times the learning rate off matrices, not off norms and
    biases."""
    max_grad_norm: float = number(1.0, 0)
    """Gradients are scaled down to this L2 norm over all parameters; 0 never clips."""
    schedule: str = one_of(("constant", "linear", "cosine"), "constant")
    """Learning rate after warm-up: `constant`, or a `linear` or `cosine` decay that would reach 0 one step after
    the last."""
    warmup_steps: int = number(0, 0)
    """Optimizer steps in which the learning rate rises linearly to `lr`; must be less than training.steps."""

    def problems(self) -> Iterator[Problem]:
        """Betas that AdamW does not take."""
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            fix = "must be two numbers, each at least 0 and less than 1, such as [0.9,0.95]"
            yield Problem("optim.betas", self.betas, fix)
