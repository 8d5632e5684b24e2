"""The table of a simulation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich.table import Table

from anchorcontext.console import plain_table
from anchorcontext.figures import counted
from anchorcontext.simulation import Simulated


def result_table(mix: str, lines: Sequence[Simulated]) -> Table:
    """A mix's results, the cheapest of each number of ranks in bold."""
    moved = ("moved", "of least", "of all-gather", "held")
    columns = ("ranks", "exchange", "policy", *moved, "work max/mean", "padding", "time/ideal", "plan ms")
    first = lines[0]
    title = f"{mix}: {counted(first.windows, 'window')} of {first.window_tokens:,} rows; moved and held: rows"
    table = plain_table(title, columns, left={"exchange", "policy"})
    for _, of_ranks in itertools.groupby(lines, key=lambda line: line.ranks):
        alike = list(of_ranks)
        cheapest = min(line.time_of_ideal for line in alike)
        for line in alike:
            table.add_row(
                str(line.ranks),
                line.exchange,
                line.policy,
                f"{line.rows_moved:,.0f}",
                "-" if line.of_lower_bound is None else f"{line.of_lower_bound:.2f}",
                f"{line.of_all_gather:.1%}",
                f"{line.rows_gathered:,.0f}",
                f"{line.work_balance:.3f}",
                f"{line.padding_rows:,.0f}",
                f"{line.time_of_ideal:.3f}",
                f"{line.plan_milliseconds:.1f}",
                style="bold" if line.time_of_ideal == cheapest else "",
                end_section=line is alike[-1],
            )
    return table
