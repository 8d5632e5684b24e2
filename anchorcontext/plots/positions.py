"""Loss against position in the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from anchorcontext.plots.style import color_of, new_figure, styled


@dataclass(frozen=True)
class PositionLoss:
    """Loss of a model over the rows [low, high) of windows.

    Attributes:
        tokens: labels it is a mean over.
        loss: nats a token.
        standard_error: of that mean, over windows; None where one window cannot say.
    """

    low: int
    high: int
    tokens: int
    loss: float
    standard_error: float | None


@styled
def draw_loss_by_position(models: Mapping[str, Sequence[PositionLoss]], title: str) -> Figure:
    """A line a model over position buckets of equal width, each bar of error one standard error long."""
    figure, axes = new_figure(8.0, 4.4)
    edges = sorted({(bucket.low, bucket.high) for buckets in models.values() for bucket in buckets})
    places = {edge: place for place, edge in enumerate(edges)}
    for number, (name, buckets) in enumerate(models.items()):
        axes.errorbar(
            [places[bucket.low, bucket.high] for bucket in buckets],
            [bucket.loss for bucket in buckets],
            yerr=[bucket.standard_error or 0.0 for bucket in buckets],
            label=name,
            color=color_of(number),
            marker="o",
            markersize=4.5,
            capsize=3,
        )
    axes.set_xticks(range(len(edges)), [f"{low:,}\nto {high - 1:,}" for low, high in edges])
    axes.set_xlabel("position in the window (rows)")
    axes.set_ylabel("loss (nats a token)")
    axes.set_title(title)
    axes.legend()
    return figure
