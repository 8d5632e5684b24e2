"""Loss against position in the window: the table in a CSV file, and the figure drawn from it."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from anchorcontext.plots.style import color_of, new_figure, plain, styled


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

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss)


COLUMNS = ("model", "low", "high", "tokens", "loss", "perplexity", "standard_error")
"""Of the CSV: a bucket is rows [low, high); `standard_error` (of the loss) is empty where it is not known."""


def write_positions(path: Path, models: Mapping[str, Sequence[PositionLoss]]) -> None:
    """Write the table, a line a model and bucket."""
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(COLUMNS)
        for model, buckets in models.items():
            for each in buckets:
                error = "" if each.standard_error is None else each.standard_error
                lines.writerow([model, each.low, each.high, each.tokens, each.loss, each.perplexity, error])


def read_positions(path: Path) -> dict[str, list[PositionLoss]]:
    """Read the table that `write_positions` wrote.

    Raises:
        ValueError: a file that is no such table.
    """
    models: dict[str, list[PositionLoss]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        lines = csv.DictReader(file)
        if tuple(lines.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path} is no table of losses by position: its columns are not {', '.join(COLUMNS)}")
        for line in lines:
            error = float(line["standard_error"]) if line["standard_error"] else None
            bucket = PositionLoss(int(line["low"]), int(line["high"]), int(line["tokens"]), float(line["loss"]), error)
            models.setdefault(line["model"], []).append(bucket)
    return models


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
            label=plain(name),
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
