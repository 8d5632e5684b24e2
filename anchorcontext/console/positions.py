"""The table of loss by position."""

from __future__ import annotations

from rich.table import Table

from anchorcontext.console import plain_table
from anchorcontext.plots import PositionLoss


def position_table(results: dict[str, list[PositionLoss]], title: str) -> Table:
    """Loss of each model, and its standard error, one line per bucket."""
    table = plain_table(title, ("rows", "tokens", *results))
    table.caption = "nats a token, +- standard error over windows"
    buckets = sorted({(each.low, each.high, each.tokens) for of_model in results.values() for each in of_model})
    for low, high, tokens in buckets:
        cells = []
        for of_model in results.values():
            found = next(each for each in of_model if each.low == low)
            error = "" if found.standard_error is None else f" +- {found.standard_error:.3f}"
            cells.append(f"{found.loss:.4f}{error}")
        table.add_row(f"{low:,}-{high - 1:,}", f"{tokens:,}", *cells)
    return table
