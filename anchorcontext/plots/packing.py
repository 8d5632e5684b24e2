"""What lies in a pack index, and what training on it will be like; drawn from the figures of its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorcontext.plots.style import INK, MUTED, SERIES, color_of, new_figure, plain, styled, whole_numbers

_DOUBLINGS = (
    ("documents_in", "documents read", 1),
    ("tokens_in", "their tokens (thousands)", 1000),
    ("pieces", "pieces packed", 1),
    ("tokens", "their tokens (thousands)", 1000),
)


@styled
def draw_lengths(sources: Mapping[str, Mapping[str, Sequence[int]]], window_tokens: int) -> Figure:
    """Documents before packing and pieces after, and the tokens in them, a bar for each doubling of length.

    Args:
        sources: by name, the histograms `documents_in`, `tokens_in`, `pieces` and `tokens`: entry i
            counts lengths from 2**i to 2**(i+1) - 1.
        window_tokens: marked in the figure.
    """
    most = max((len(values) for each in sources.values() for values in each.values()), default=1)
    most = max(most, window_tokens.bit_length())
    stacked = {
        key: np.array([[*each[key], *[0] * (most - len(each[key]))] for each in sources.values()], dtype=float)
        for key, _, _ in _DOUBLINGS
    }
    anything = np.flatnonzero(sum(values.sum(axis=0) for values in stacked.values()))
    first = int(anything[0]) if len(anything) else 0
    figure, panels = new_figure(9.0, 5.6, rows=2, columns=2, sharex=True)
    for axes, (key, label, unit) in zip(panels.flat, _DOUBLINGS, strict=True):
        below = np.zeros(most)
        for number, (source, heights) in enumerate(zip(sources, stacked[key] / unit, strict=True)):
            bars = {"width": 0.92, "align": "edge", "color": color_of(number), "label": plain(source)}
            axes.bar(np.arange(most)[first:], heights[first:], bottom=below[first:], **bars)
            below = below + heights
        axes.axvline(np.log2(window_tokens), color=INK, linestyle="--", linewidth=1.2)
        axes.set_ylabel(label)
        whole_numbers(axes, "y")
    panels[0, 0].set_title(f"Before packing (dashed: the window of {window_tokens:,} rows)")
    panels[1, 0].set_title("After packing")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right upper")
    for axes in panels[1]:
        shown = np.arange(first, most + 1, max(1, -(-(most - first) // 6)))
        names = [f"{2 ** int(exponent):,}" for exponent in shown]
        axes.set_xticks(shown, names, rotation=30, ha="right", rotation_mode="anchor")
        axes.set_xlabel("length (tokens)")
    return figure


@styled
def draw_sources(tokens: Mapping[str, int], wanted: Mapping[str, int]) -> Figure:
    """Training tokens of each source, and what a mixture wanted of it.

    Args:
        tokens: packed, by source.
        wanted: by source; empty without a mixture.
    """
    figure, axes = new_figure(8.0, 1.3 + 0.38 * len(tokens))
    places = np.arange(len(tokens))[::-1]
    total = max(sum(tokens.values()), 1)
    axes.barh(places, [count / 1e6 for count in tokens.values()], color=SERIES[0], height=0.62)
    for place, (source, count) in zip(places, tokens.items(), strict=True):
        if source in wanted:
            axes.plot([wanted[source] / 1e6] * 2, [place - 0.42, place + 0.42], color=SERIES[1], linewidth=2.4)
        axes.annotate(
            f"{count / total:.1%}", (max(count, wanted.get(source, 0)) / 1e6, place), (6, 0),
            textcoords="offset points", va="center",
        )  # fmt: skip
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    axes.set_yticks(places, [plain(source) for source in tokens])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("training tokens (millions)")
    axes.set_title("Sources" + (" (line: what the mixture wanted)" if wanted else ""))
    return figure


@styled
def draw_used(counts: Sequence[int], edges: Sequence[float]) -> Figure:
    """Windows by the share of their rows that is used.

    Args:
        counts: from each edge to the next, and full windows.
        edges: shares, 0 to 1.
    """
    figure, axes = new_figure(8.0, 2.8)
    names = [f"{low:.1%}\nto {high:.1%}" for low, high in pairwise(edges)]
    _counted_bars(axes, counts, [*(name.replace(".0%", "%") for name in names), "full"])
    axes.set_xlabel("share of the window's rows that is no padding")
    axes.set_ylabel("windows")
    axes.set_title("Density")
    return figure


@styled
def draw_distances(distances: Sequence[int], pairs: Sequence[int], num_windows: int, window_tokens: int) -> Figure:
    """Distance frequency f(i): pairs of rows at each distance that lie in one document, on both axes logarithmic.

    Beside it, in grey, what one document a window would give.
    """
    figure, axes = new_figure(8.0, 3.6)
    last = window_tokens - 1  # of which a full window has one pair: it would squeeze all others together
    known = zip(distances, pairs, strict=True)
    shown = [(distance, count) for distance, count in known if 0 < distance < last and count]
    places = np.array([distance for distance in distances if 0 < distance < last])
    axes.plot(places, num_windows * (window_tokens - places), color=MUTED, label="one document a window")
    if shown:
        axes.plot(*zip(*shown, strict=True), color=SERIES[0], marker=".", label="this index")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    whole_numbers(axes, "x")
    axes.set_xlabel("distance i (rows)")
    axes.set_ylabel("pairs at distance i")
    axes.set_title("Distance frequency f(i): how often training sees a relative position")
    axes.legend()
    return figure


@styled
def draw_work(windows_by_share: Sequence[int]) -> Figure:
    """Windows by their attention work, as a share of a window's that holds one document.

    Args:
        windows_by_share: counts in equal parts of 0 to 1.
    """
    figure, axes = new_figure(8.0, 3.0)
    width = 1 / len(windows_by_share)
    lefts = np.arange(len(windows_by_share)) * width
    axes.bar(lefts, windows_by_share, width=0.92 * width, align="edge", color=SERIES[0])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    whole_numbers(axes, "y")
    axes.set_xlabel("attention work (sum of squared document lengths), of one document's that fills the window")
    axes.set_ylabel("windows")
    axes.set_title("Work a window")
    return figure


@styled
def draw_balance(context_parallel: Sequence[Mapping[str, Any]], step_efficiency: Mapping[str, float]) -> Figure:
    """How evenly ranks work: those that share a window, and those that take a step's windows side by side."""
    figure, (left, right) = new_figure(9.0, 3.4, columns=2)
    ranks = [each["ranks"] for each in context_parallel]
    for number, (key, label) in enumerate(
        (
            ("time_of_ideal", "modelled time / ideal"),
            ("worst_work_balance", "work, max / mean: worst window"),
            ("work_balance", "work, max / mean: mean"),
        )
    ):
        left.plot(ranks, [each[key] for each in context_parallel], color=color_of(number), marker="o", label=label)
    left.set_xscale("log", base=2)
    left.set_xticks(ranks, [str(count) for count in ranks])
    left.minorticks_off()
    left.set_ylim(0.98, 0.98 + 1.6 * max(left.get_ylim()[1] - 0.98, 0.06))  # room for the legend
    left.set_xlabel("ranks that share a window")
    left.set_title("Within a window")
    left.legend()
    names = [f"{steps}\n(plain)" if steps == "0" else steps for steps in step_efficiency]
    bars = right.bar(names, list(step_efficiency.values()), color=SERIES[0], width=0.62)
    right.bar_label(bars, [f"{value:.1%}" for value in step_efficiency.values()], padding=2)
    right.set_ylim(0, 1.12)
    right.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    right.grid(visible=False, axis="x")
    right.set_xlabel("order.balance_steps")
    right.set_ylabel("step efficiency")
    right.set_title("Among the windows of a step")
    return figure


def _counted_bars(axes: Axes, counts: Sequence[int], names: Sequence[str]) -> None:
    """Bars with the number of windows above each."""
    bars = axes.bar(range(len(counts)), counts, color=SERIES[0], width=0.8)
    axes.bar_label(bars, [f"{count:,}" for count in counts], padding=2)
    axes.set_xticks(range(len(counts)), names)
    axes.margins(y=0.14)
    axes.grid(visible=False, axis="x")
    whole_numbers(axes, "y")
