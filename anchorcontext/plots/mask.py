"""The attention mask of one window and the positions of its rows, as shapes and not as pixels.

A segment's rows lie in runs of neighbours. A run sees itself in a triangle and the segment's earlier
runs in rectangles, so a window of any length is a few shapes for each of its pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from anchorcontext.layout import WindowLayout
from anchorcontext.plots.style import ANCHOR, INK, MUTED, color_of, new_figure, plain, styled, whole_numbers

Polygon = list[tuple[float, float]]

_LABELLED_SHARE = 0.04
"""Pieces of at least this share of the window carry their number."""


@dataclass(frozen=True)
class Run:
    """Neighbouring rows [first, end) of one segment."""

    segment: int
    first: int
    end: int


@styled
def draw_mask(layout: WindowLayout, piece_sources: Sequence[str], title: str) -> Figure:
    """Left: which rows (down) see which rows (across). Right: the rotary position of each row.

    What a row sees of its own document has the colour of the document's source, what it sees of
    others is grey, and the anchor copies are drawn as columns.

    Args:
        layout: a window of any length.
        piece_sources: the name of each piece's source.
    """
    figure, (mask, positions) = new_figure(10.0, 6.4, columns=2, sharey=True, width_ratios=(3, 1))
    colors = {name: color_of(number) for number, name in enumerate(dict.fromkeys(piece_sources))}
    _draw_attention(mask, layout, [colors[name] for name in piece_sources])
    if layout.arm == "anchor":
        _draw_anchor_columns(mask, layout)
    _draw_positions(positions, layout)
    rows = layout.num_rows
    mask.set(xlim=(0, rows), ylim=(rows, 0), aspect="equal", xlabel="key (row)", ylabel="query (row)", title=title)
    mask.grid(False)
    whole_numbers(mask, "x", "y")
    positions.set(xlim=(-0.04 * rows, rows), xlabel="rotary position", title="positions")
    whole_numbers(positions, "x")
    mask.legend(handles=_legend(layout, colors), loc="upper right")
    return figure


def segment_runs(segment_ids: np.ndarray) -> list[Run]:
    """Runs of equal segment, in window order; padding is left out. `segment_ids` is int64 [rows]."""
    changes = np.flatnonzero(np.diff(segment_ids)) + 1
    firsts = np.concatenate(([0], changes)).tolist()
    ends = np.concatenate((changes, [len(segment_ids)])).tolist()
    runs = (Run(int(segment_ids[first]), first, end) for first, end in zip(firsts, ends, strict=True))
    return [run for run in runs if run.segment >= 0]


def seen_shapes(runs: Sequence[Run]) -> Iterator[Polygon]:
    """The corners (key, query) of every area in which queries see keys."""
    earlier: dict[int, list[Run]] = {}
    for run in runs:
        yield [(run.first, run.first), (run.first, run.end), (run.end, run.end)]
        for other in earlier.setdefault(run.segment, []):
            yield [(other.first, run.first), (other.first, run.end), (other.end, run.end), (other.end, run.first)]
        earlier[run.segment].append(run)


def _draw_attention(axes: Axes, layout: WindowLayout, piece_colors: Sequence[str]) -> None:
    runs = segment_runs(layout.segment_ids.numpy())
    axes.add_collection(PolyCollection(list(seen_shapes(runs)), facecolors=MUTED, linewidths=0))
    documents = document_rows(layout)
    # One segment holds several documents under `full` alone; elsewhere a segment is one document's.
    own = segment_runs(documents) if layout.arm == "full" else runs
    color_of_document = dict(zip(layout.document_ids.tolist(), piece_colors, strict=True))
    for number in sorted({run.segment for run in own}):
        members = [run for run in own if run.segment == number]
        document = int(documents[members[0].first])
        axes.add_collection(
            PolyCollection(
                list(seen_shapes(members)),
                facecolors=color_of_document[document],
                alpha=0.95 if document % 2 == 0 else 0.7,  # so that neighbours of one source can be told apart
                edgecolors="white",
                linewidths=0.3,
            )
        )
    _number_pieces(axes, layout)
    used = int(layout.piece_lengths.sum())
    if used < layout.num_rows:
        axes.axhspan(used, layout.num_rows, facecolor="none", edgecolor=MUTED, hatch="///", linewidth=0)


def document_rows(layout: WindowLayout) -> np.ndarray:
    """The document of each row, int64 [num_rows]; -1 for padding."""
    documents = np.full(layout.num_rows, -1, dtype=np.int64)
    documents[: layout.piece_lengths.sum()] = np.repeat(layout.document_ids, layout.piece_lengths)
    return documents


def _number_pieces(axes: Axes, layout: WindowLayout) -> None:
    for piece, (offset, length) in enumerate(
        zip(layout.piece_offsets.tolist(), layout.piece_lengths.tolist(), strict=True)
    ):
        if length >= _LABELLED_SHARE * layout.num_rows:
            center = (offset + length / 3, offset + 2 * length / 3)
            axes.text(*center, str(piece), color="white", ha="center", va="center")


def _draw_anchor_columns(axes: Axes, layout: WindowLayout) -> None:
    """A line below each anchor row, over the rows that see it."""
    segments = layout.segment_ids.numpy()
    anchor_of = {int(segments[row]): row for row in _anchor_rows(layout)}
    lines = [
        [(anchor_of[run.segment] + 0.5, run.first), (anchor_of[run.segment] + 0.5, run.end)]
        for run in segment_runs(segments)
    ]
    axes.add_collection(LineCollection(lines, colors=ANCHOR, linewidths=1.8))


def _draw_positions(axes: Axes, layout: WindowLayout) -> None:
    positions = layout.position_ids.numpy()
    firsts = (layout.piece_offsets + layout.prefix_lengths).tolist()
    lasts = (layout.piece_offsets + layout.piece_lengths - 1).tolist()
    lines = [
        [(positions[first], first), (positions[last], last)]
        for first, last in zip(firsts, lasts, strict=True)
        if first <= last
    ]
    axes.add_collection(LineCollection(lines, colors=INK, linewidths=1.6))
    anchors = _anchor_rows(layout)
    axes.plot(positions[anchors], anchors, linestyle="none", marker="o", color=ANCHOR, markersize=4, clip_on=False)


def _anchor_rows(layout: WindowLayout) -> list[int]:
    return layout.piece_offsets[layout.prefix_lengths > 0].tolist()


def _legend(layout: WindowLayout, colors: dict[str, str]) -> list[Patch]:
    patches = [Patch(color=color, label=plain(name)) for name, color in colors.items()]
    if layout.arm == "full":
        patches.append(Patch(color=MUTED, label="other documents"))
    patches.append(Patch(color=ANCHOR, label="anchor copies" if layout.arm == "anchor" else "BOS rows (right)"))
    if layout.piece_lengths.sum() < layout.num_rows:
        patches.append(Patch(facecolor="none", edgecolor=MUTED, hatch="///", label="padding"))
    return patches
