"""What one rank does in one step of attention: rows out, rows in, segments over them.

An exchange is a sequence of stages. `gather` is one: all needed rows arrive, and each run of queries
then has its document's earlier keys in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anchorcontext.attention import Segments
from anchorcontext.context_parallel.rows import Shares, expand_ranges


@dataclass(frozen=True, eq=False)
class Stage:
    """One step of one rank.

    Keys come from a buffer of the rank's own rows (all of them, in the order it holds them), then
    the received rows (by sending rank, then by place).
    """

    send_rows: np.ndarray
    """Own rows to send, by receiving rank, then by place; a row may go to several ranks. int64."""
    send_counts: list[int]
    """How many go to each rank."""
    receive_counts: list[int]
    """How many come from each rank."""
    exchanges: bool
    """Whether any rank sends: then all ranks take part, else none."""
    key_rows: np.ndarray | None
    """Rows of the buffer in the order that `segments` counts keys, each at most once. int64.
    None: the rank's own rows as they are."""
    segments: Segments


@dataclass(frozen=True, eq=False)
class KeyReach:
    """How far each rank's queries see: places up to `ends` of a segment. Sorted by segment."""

    segments: np.ndarray
    ranks: np.ndarray
    ends: np.ndarray
    """Past the last place the rank needs."""

    @classmethod
    def of(cls, shares: Shares, num_ranks: int) -> KeyReach:
        """One entry for every pair of segment and rank that has queries."""
        shares = shares.of_segments()
        pair = shares.segments * num_ranks + shares.ranks
        order = np.argsort(pair, kind="stable")  # by place within a pair: its last range reaches farthest
        pair = pair[order]
        last = np.flatnonzero(np.diff(pair, append=-1))
        return cls(pair[last] // num_ranks, pair[last] % num_ranks, shares.ends[order][last])

    def of_rank(self, rank: int) -> KeyReach:
        chosen = self.ranks == rank
        return KeyReach(self.segments[chosen], self.ranks[chosen], self.ends[chosen])


def gather_stage(
    shares: Shares, reach: KeyReach, segment_offsets: np.ndarray, rank: int, num_ranks: int, rows_per_rank: int
) -> Stage:
    """The one stage of exchange `gather` on `rank`.

    Args:
        shares: who holds which rows.
        reach: `KeyReach.of(shares, num_ranks)`.
        segment_offsets: the place where each segment begins.
        rows_per_rank: rows of the rank's own part of the buffer, padding included.
    """
    held = shares.of_rank(rank)
    local_starts = np.cumsum(held.lengths) - held.lengths
    is_query = held.segments >= 0
    queries, query_starts = held.take(is_query), local_starts[is_query]
    send_rows, send_counts = _rows_to_send(queries, query_starts, reach, rank, num_ranks)
    own_reach = reach.of_rank(rank)
    received = _received(shares.of_segments(), own_reach, rank)

    offsets = segment_offsets[queries.segments]
    if np.array_equal(queries.starts, offsets):  # every run begins its segment: its keys are its own rows
        key_rows, key_starts = None, query_starts
    else:
        numbers = _KeyNumbers(own_reach, segment_offsets)
        received_starts = rows_per_rank + np.cumsum(received.lengths) - received.lengths
        key_rows = numbers.buffer_rows((queries, query_starts), (received, received_starts))
        key_starts = numbers.of(queries.segments, offsets)
    return Stage(
        send_rows=send_rows,
        send_counts=send_counts,
        receive_counts=np.bincount(received.ranks, weights=received.lengths, minlength=num_ranks).astype(int).tolist(),
        exchanges=_rows_in_all(reach, segment_offsets) > int(shares.of_segments().lengths.sum()),
        key_rows=key_rows,
        segments=Segments(query_starts, queries.lengths, key_starts, queries.ends - offsets),
    )


class _KeyNumbers:
    """Number of each key a rank needs, its segments behind one another from their first place on."""

    def __init__(self, own_reach: KeyReach, segment_offsets: np.ndarray) -> None:
        offsets = segment_offsets[own_reach.segments]
        lengths = own_reach.ends - offsets
        self._total = int(lengths.sum())
        self._segments = own_reach.segments
        self._shifts = np.cumsum(lengths) - lengths - offsets

    def of(self, segments: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Numbers of the keys at `places` of `segments`."""
        return places + self._shifts[np.searchsorted(self._segments, segments)]

    def buffer_rows(self, *parts: tuple[Shares, np.ndarray]) -> np.ndarray:
        """The buffer row of every key, by number, from ranges that hold them all and where each stands."""
        rows = np.empty(self._total, dtype=np.int64)
        for ranges, buffer_starts in parts:
            numbers = expand_ranges(self.of(ranges.segments, ranges.starts), ranges.lengths)
            rows[numbers] = expand_ranges(buffer_starts, ranges.lengths)
        return rows


def _rows_to_send(
    queries: Shares, local_starts: np.ndarray, reach: KeyReach, rank: int, num_ranks: int
) -> tuple[np.ndarray, list[int]]:
    """The rows of `queries` that others need, by receiving rank, then by place; and counts by rank."""
    first = np.searchsorted(reach.segments, queries.segments, side="left")
    count = np.searchsorted(reach.segments, queries.segments, side="right") - first
    sent = np.repeat(np.arange(len(count)), count)  # every range once for each rank in its segment
    to = expand_ranges(first, count)
    lengths = np.minimum(queries.ends[sent], reach.ends[to]) - queries.starts[sent]
    needed = (lengths > 0) & (reach.ranks[to] != rank)
    sent, to, lengths = sent[needed], to[needed], lengths[needed]
    order = np.lexsort((queries.starts[sent], reach.ranks[to]))
    counts = np.bincount(reach.ranks[to], weights=lengths, minlength=num_ranks).astype(int)
    return expand_ranges(local_starts[sent[order]], lengths[order]), counts.tolist()


def _received(shares: Shares, own_reach: KeyReach, rank: int) -> Shares:
    """The ranges a rank receives, cut to what it needs, by sending rank, then by place."""
    first = np.searchsorted(shares.segments, own_reach.segments, side="left")
    count = np.searchsorted(shares.segments, own_reach.segments, side="right") - first
    candidates = shares.take(expand_ranges(first, count))
    candidates = candidates.end_by(np.repeat(own_reach.ends, count))
    received = candidates.take((candidates.lengths > 0) & (candidates.ranks != rank))
    return received.take(np.lexsort((received.starts, received.ranks)))


def _rows_in_all(reach: KeyReach, segment_offsets: np.ndarray) -> int:
    """Key rows that all ranks need, own ones included."""
    return int((reach.ends - segment_offsets[reach.segments]).sum())
