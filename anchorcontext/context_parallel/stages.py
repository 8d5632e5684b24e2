"""What one rank does in one step of attention: rows out, rows in, segments over them.

An exchange is a sequence of stages. `gather` is one: all needed rows arrive, and each run of queries
then has its document's earlier keys in order. `ring` is up to one per rank: first the rank's own rows,
then what each other rank holds, one rank at a time, whose results are merged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anchorcontext.attention import Segments
from anchorcontext.context_parallel.rows import Shares, expand_ranges
from anchorcontext.layout import PADDING_SEGMENT


@dataclass(frozen=True, eq=False)
class Stage:
    """One step of one rank.

    Keys come from a buffer: where `uses_own`, the rank's own rows (all of them, in the order it
    holds them), then the received rows (by sending rank, then by place).
    """

    send_rows: np.ndarray
    """Own rows to send, by receiving rank, then by place; a row may go to several ranks. int64."""
    send_counts: list[int]
    """How many go to each rank."""
    receive_counts: list[int]
    """How many come from each rank."""
    exchanges: bool
    """Whether there is an exchange to take part in. Without `peers` all ranks do, or none."""
    key_rows: np.ndarray | None
    """Rows of the buffer in the order that `segments` counts keys, each at most once. int64.
    None: the buffer as it is."""
    segments: Segments
    uses_own: bool = True
    query_rows: np.ndarray | None = None
    """Own rows that see a key of this stage, as `segments` counts queries. int64. None: all own rows."""
    peers: tuple[int, int] | None = None
    """Point to point: the one rank to send to, and the one to receive from."""


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
    queries, query_starts = _queries(shares, rank)
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


def ring_stages(
    shares: Shares,
    reach: KeyReach,
    segment_offsets: np.ndarray,
    rank: int,
    num_ranks: int,
    distances: list[int],
) -> tuple[Stage, ...]:
    """The stages of exchange `ring` on `rank`: its own rows, then those of rank - d for each distance d.

    Every rank has a stage for every distance, if only an idle one: rows then leave in the same order
    everywhere, and meet who waits for them. Further arguments as `gather_stage`.
    """
    queries, query_starts = _queries(shares, rank)
    send_rows, send_counts = _rows_to_send(queries, query_starts, reach, rank, num_ranks)
    send_ends = np.cumsum(send_counts)
    received = _received(shares.of_segments(), reach.of_rank(rank), rank)
    sender_bounds = np.searchsorted(received.ranks, np.arange(num_ranks + 1))
    offsets = segment_offsets[queries.segments]
    stages = [_own_stage(queries, query_starts, offsets, num_ranks)]
    for distance in distances:
        to, sender = (rank + distance) % num_ranks, (rank - distance) % num_ranks
        keys = received.take(np.arange(sender_bounds[sender], sender_bounds[sender + 1]))
        rows = send_rows[send_ends[to] - send_counts[to] : send_ends[to]]
        stages.append(_peer_stage(queries, query_starts, offsets, keys, rows, (to, sender), num_ranks))
    return tuple(stages)


def _own_stage(queries: Shares, query_starts: np.ndarray, offsets: np.ndarray, num_ranks: int) -> Stage:
    """Causal attention of a rank's queries over its own rows."""
    by_place = np.argsort(queries.starts)
    keys, buffer_starts = queries.take(by_place), query_starts[by_place]
    numbers = np.cumsum(keys.lengths) - keys.lengths
    first = np.searchsorted(keys.starts, offsets)  # each query range's first key range, and its own
    own = np.searchsorted(keys.starts, queries.starts)
    earlier = numbers[own] - numbers[first]
    key_rows, key_starts = None, buffer_starts[first]
    if not np.array_equal(query_starts - key_starts, earlier):  # a segment's rows are not contiguous here
        key_rows, key_starts = expand_ranges(buffer_starts, keys.lengths), numbers[first]
    return Stage(
        send_rows=np.empty(0, dtype=np.int64),
        send_counts=[0] * num_ranks,
        receive_counts=[0] * num_ranks,
        exchanges=False,
        key_rows=key_rows,
        segments=Segments(query_starts, queries.lengths, key_starts, earlier + queries.lengths),
    )


def _peer_stage(
    queries: Shares,
    query_starts: np.ndarray,
    offsets: np.ndarray,
    keys: Shares,
    send_rows: np.ndarray,
    peers: tuple[int, int],
    num_ranks: int,
) -> Stage:
    """Attention of a rank's queries over what another rank holds.

    Ranges of two ranks never overlap, so a query sees all or nothing of a range.
    """
    numbers = np.concatenate(([0], np.cumsum(keys.lengths)))
    key_starts = numbers[np.searchsorted(keys.starts, offsets)]
    key_lengths = numbers[np.searchsorted(keys.starts, queries.starts)] - key_starts
    seeing = key_lengths > 0
    lengths = queries.lengths[seeing]
    to, sender = peers
    send_counts, receive_counts = [0] * num_ranks, [0] * num_ranks
    send_counts[to], receive_counts[sender] = len(send_rows), int(numbers[-1])
    return Stage(
        send_rows=send_rows,
        send_counts=send_counts,
        receive_counts=receive_counts,
        exchanges=True,
        key_rows=None,
        segments=Segments(np.cumsum(lengths) - lengths, lengths, key_starts[seeing], key_lengths[seeing], causal=False),
        uses_own=False,
        query_rows=expand_ranges(query_starts[seeing], lengths),
        peers=peers,
    )


def _queries(shares: Shares, rank: int) -> tuple[Shares, np.ndarray]:
    """A rank's ranges that are not padding, and at which of its own rows each begins."""
    held = shares.of_rank(rank)
    starts = np.cumsum(held.lengths) - held.lengths
    is_query = held.segments != PADDING_SEGMENT
    return held.take(is_query), starts[is_query]


class _KeyNumbers:
    """Number of each key a rank needs, its segments concatenated, each from its first place on."""

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
    """The ranges a rank receives, trimmed to what it needs, by sending rank, then by place."""
    first = np.searchsorted(shares.segments, own_reach.segments, side="left")
    count = np.searchsorted(shares.segments, own_reach.segments, side="right") - first
    candidates = shares.take(expand_ranges(first, count))
    candidates = candidates.end_by(np.repeat(own_reach.ends, count))
    received = candidates.take((candidates.lengths > 0) & (candidates.ranks != rank))
    return received.take(np.lexsort((received.starts, received.ranks)))


def _rows_in_all(reach: KeyReach, segment_offsets: np.ndarray) -> int:
    """Key rows that all ranks need, own ones included."""
    return int((reach.ends - segment_offsets[reach.segments]).sum())
