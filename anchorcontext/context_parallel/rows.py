"""Rows of a window ordered by segment, and shares of them held by ranks.

A row's *place* is its index when all rows are sorted by (segment, window row), padding last. A
query at place p of a segment that begins at place s sees exactly the keys at places [s, p], so
whatever the arm or the interleaving, plans are arithmetic on ranges of places.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from anchorcontext.layout import PADDING_SEGMENT, WindowLayout


@dataclass(frozen=True, eq=False)
class SegmentedRows:
    """The runs of a window: rows that are neighbours in the window and in one segment.

    All int64. Runs are sorted by place; `segment_offsets` has one more entry than there are
    segments, the last being the place where padding begins.
    """

    places: np.ndarray
    rows: np.ndarray
    lengths: np.ndarray
    segments: np.ndarray
    segment_offsets: np.ndarray
    num_rows: int

    @classmethod
    def of(cls, layout: WindowLayout) -> SegmentedRows:
        rows, segments = layout.segment_runs
        lengths = np.diff(rows, append=layout.num_rows)
        order = np.argsort(np.where(segments == PADDING_SEGMENT, np.iinfo(np.int64).max, segments), kind="stable")
        rows, lengths, segments = rows[order], lengths[order], segments[order]
        places = np.cumsum(lengths) - lengths
        first_of_segment = np.flatnonzero(np.diff(segments, prepend=np.int64(-2)))
        segment_offsets = places[first_of_segment]
        if len(segments) == 0 or segments[-1] != PADDING_SEGMENT:
            segment_offsets = np.append(segment_offsets, layout.num_rows)
        return cls(places, rows, lengths, segments, segment_offsets, layout.num_rows)


@dataclass(frozen=True, eq=False)
class Shares:
    """Which rank holds which rows, as ranges of places sorted by place.

    A range's rows are neighbours in the window, of one segment, held by one rank. All int64.
    """

    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray
    """Window row of each range's first place."""
    segments: np.ndarray
    """Segment of each range; -1 for padding."""
    ranks: np.ndarray

    @classmethod
    def cut(cls, window: SegmentedRows, starts: np.ndarray, ranks: np.ndarray) -> Shares:
        """Ranges from the places where the rank changes: rank `ranks[i]` holds [starts[i], starts[i + 1]).

        `starts` are ascending and begin with 0. Ranges are cut further where runs end.
        """
        cuts = merged(starts, window.places)
        run = np.searchsorted(window.places, cuts, side="right") - 1
        owner = ranks[np.searchsorted(starts, cuts, side="right") - 1]
        first = np.ones(len(cuts), dtype=bool)
        first[1:] = (np.diff(run) != 0) | (np.diff(owner) != 0)  # neighbours of one owner are one range
        cuts, run, owner = cuts[first], run[first], owner[first]
        return cls(
            starts=cuts,
            ends=np.append(cuts[1:], window.num_rows),
            rows=window.rows[run] + cuts - window.places[run],
            segments=window.segments[run],
            ranks=owner,
        )

    def of_rank(self, rank: int) -> Shares:
        """The ranges of one rank, in the order it holds them: by window row."""
        held = np.flatnonzero(self.ranks == rank)
        return self.take(held[np.argsort(self.rows[held], kind="stable")])

    def of_segments(self) -> Shares:
        """The ranges that are not padding."""
        return self.take(self.segments != PADDING_SEGMENT)

    def take(self, chosen: np.ndarray) -> Shares:
        """The ranges selected by an index or a mask."""
        return Shares(
            self.starts[chosen], self.ends[chosen], self.rows[chosen], self.segments[chosen], self.ranks[chosen]
        )

    def end_by(self, ends: np.ndarray) -> Shares:
        """The ranges cut off at `ends`; one that begins later gets a length of 0 or less."""
        return replace(self, ends=np.minimum(self.ends, ends))

    @property
    def lengths(self) -> np.ndarray:
        return self.ends - self.starts


def take_rows(rows: Tensor, order: Tensor, padding: int) -> Tensor:
    """Rows of a window in the order a rank holds them.

    Args:
        rows: [num_rows, ...].
        order: what `ContextPlan.row_order` returned, [T_local].
        padding: the value where the order is -1.

    Returns:
        [T_local, ...] in the dtype of `rows`.
    """
    is_row = (order >= 0).reshape(-1, *[1] * (rows.ndim - 1))
    return torch.where(is_row, rows[order.clamp(min=0)], padding)


def merged(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The sorted union of two arrays. Fast where both are nearly sorted, unlike np.union1d."""
    values = np.concatenate((first, second))
    values.sort(kind="stable")
    return values[np.append(True, np.diff(values) != 0)[: len(values)]]


def expand_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The integers of all ranges, concatenated: [a, a+1, .., b, b+1, ..]."""
    offsets = np.cumsum(lengths) - lengths
    return np.repeat(starts - offsets, lengths) + np.arange(lengths.sum())
