"""What sharing windows among ranks moves and costs, by the number of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from anchorcontext.plots.style import color_of, new_figure, styled

PANELS = (
    ("of_all_gather", "rows moved / all-gather's"),
    ("work_balance", "work, max / mean"),
    ("time_of_ideal", "modelled time / ideal"),
)
"""The figures that are drawn, a row of panels each, and what their axis says."""

_HIGHEST = {"of_all_gather": 1.25, "work_balance": 2.0, "time_of_ideal": 2.0}
"""Where axes end: what lies beyond is out of the question, and would press the rest together."""
_LOWEST = {"of_all_gather": 0.0, "work_balance": 0.98, "time_of_ideal": 0.98}
_DASHES = ("-", "--", ":", "-.")
_UNDERLAID = {"linewidth": 6, "alpha": 0.35, "zorder": 1}
"""How `auto` is drawn, which is always on the line of another policy."""


@styled
def draw_simulation(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """A row of panels for each of `PANELS`, a column a mix: over ranks, a line a policy and exchange.

    Args:
        lines: what `anchorcontext simulate` writes to its CSV; numbers as numbers.
    """
    mixes, policies, exchanges = (
        list(dict.fromkeys(line[key] for line in lines)) for key in ("mix", "policy", "exchange")
    )
    figure, panels = new_figure(3.2 * len(mixes) + 1.5, 7.5, len(PANELS), len(mixes), sharex=True, squeeze=False)
    for row, (key, label) in enumerate(PANELS):
        for column, mix in enumerate(mixes):
            axes = panels[row][column]
            for number, policy in enumerate(policies):
                for dash, exchange in enumerate(exchanges):
                    chosen = [
                        line
                        for line in lines
                        if (line["mix"], line["policy"], line["exchange"]) == (mix, policy, exchange)
                    ]
                    if chosen:
                        axes.plot(
                            [line["ranks"] for line in chosen],
                            [line[key] for line in chosen],
                            color=color_of(number),
                            linestyle=_DASHES[dash % len(_DASHES)],
                            marker=".",
                            **(_UNDERLAID if policy == "auto" else {}),
                            label=f"{policy}, {exchange}",
                        )
            axes.set_xscale("log", base=2)
            axes.set_ylim(_LOWEST[key], min(max(axes.get_ylim()[1], 1.1), _HIGHEST[key]))
            if column == 0:
                axes.set_ylabel(label)
            if row == 0:
                axes.set_title(mix)
            if row == len(PANELS) - 1:
                axes.set_xlabel("ranks")
                axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    handles = {name: line for axes in panels[0] for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right upper")
    return figure
