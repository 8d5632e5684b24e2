"""Loss, gradient norm and learning rate of training runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from anchorcontext.plots.style import color_of, new_figure, plain, styled, whole_numbers

PANELS = (("loss", "loss (nats a token)"), ("grad_norm", "gradient norm"), ("learning_rate", "learning rate"))
"""The figures of a step that are drawn, a panel each, and what their axis says."""


@styled
def draw_training(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """A panel for each of `PANELS` over tokens seen, a line a run.

    Args:
        runs: the lines of metrics.jsonl of each run, in order.
    """
    figure, panels = new_figure(8.0, 7.0, rows=len(PANELS), sharex=True, height_ratios=(2, 1, 1))
    for axes, (key, label) in zip(panels, PANELS, strict=True):
        for number, (name, steps) in enumerate(runs.items()):
            known = [step for step in steps if step.get(key) is not None]
            tokens = [step["tokens"] / 1e6 for step in known]
            values = [step[key] for step in known]
            if key == "loss":
                axes.plot(tokens, values, color=color_of(number), alpha=0.25, linewidth=0.8)
                values = smooth(values)
            axes.plot(tokens, values, color=color_of(number), label=plain(name))
        axes.set_ylabel(label)
    panels[0].legend()
    panels[0].set_title("Training (loss: thin line a step, thick line smoothed)")
    panels[-1].set_xlabel("tokens seen in the run (millions)")
    if max((step["tokens"] for steps in runs.values() for step in steps), default=0) >= 50e6:
        whole_numbers(panels[-1], "x")
    return figure


def smooth(values: Sequence[float]) -> list[float]:
    """Mean of each value and its neighbours: a twentieth of the run on each side, as far as there are any."""
    reach = len(values) // 20
    sums = np.concatenate(([0.0], np.cumsum(values)))
    places = np.arange(len(values))
    first, end = np.maximum(places - reach, 0), np.minimum(places + reach + 1, len(values))
    return ((sums[end] - sums[first]) / (end - first)).tolist()
