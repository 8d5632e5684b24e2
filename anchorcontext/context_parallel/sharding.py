"""Which rank holds which rows, and what follows from it for every exchange."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from anchorcontext.context_parallel.rows import SegmentedRows, Shares, expand_ranges
from anchorcontext.context_parallel.stages import KeyReach


class Sharding:
    """A window's rows distributed over ranks.

    Attributes:
        window: its runs.
        shares: who holds which rows.
        segment_offsets: the place where each segment begins.
        ranks: how many share the window.
        rows_per_rank: rows of each rank, padding included.
    """

    def __init__(self, window: SegmentedRows, shares: Shares, ranks: int) -> None:
        self.window = window
        self.shares = shares
        self.segment_offsets = window.segment_offsets
        self.num_rows = window.num_rows
        self.ranks = ranks
        self.rows_per_rank = -(-window.num_rows // ranks)

    @cached_property
    def pairs(self) -> np.ndarray:
        """Query-key pairs of each rank's queries, int64 [ranks]."""
        shares = self.shares.of_segments()
        first = shares.starts - self.segment_offsets[shares.segments]  # keys before the first query
        last = shares.ends - self.segment_offsets[shares.segments]
        return self._by_rank((last * (last + 1) - first * (first + 1)) // 2, shares.ranks)

    @cached_property
    def rows_missing(self) -> np.ndarray:
        """Key rows each rank's queries see but the rank does not hold, int64 [ranks]: the least it must receive."""
        reach = self.reach
        seen = self._by_rank(reach.ends - self.segment_offsets[reach.segments], reach.ranks)
        shares = self.shares.of_segments()
        return seen - self._by_rank(shares.lengths, shares.ranks)

    @cached_property
    def reach(self) -> KeyReach:
        return KeyReach.of(self.shares, self.ranks)

    @cached_property
    def traffic(self) -> np.ndarray:
        """The missing rows by the rank that holds them: int64 [receiving rank, holding rank]."""
        shares, reach = self.shares.of_segments(), self.reach
        first = np.searchsorted(shares.segments, reach.segments, side="left")
        count = np.searchsorted(shares.segments, reach.segments, side="right") - first
        held, reader = expand_ranges(first, count), np.repeat(np.arange(len(count)), count)
        lengths = np.minimum(shares.ends[held], reach.ends[reader]) - shares.starts[held]
        sender, receiver = shares.ranks[held], reach.ranks[reader]
        lengths = np.where(sender == receiver, 0, np.maximum(lengths, 0))
        pairs = np.bincount(receiver * self.ranks + sender, weights=lengths, minlength=self.ranks**2)
        return pairs.astype(np.int64).reshape(self.ranks, self.ranks)

    def on_one_rank(self) -> Sharding:
        """The same window, all of it on rank 0."""
        whole = Shares.cut(self.window, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
        return Sharding(self.window, whole, 1)

    def _by_rank(self, values: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        # Weights are summed in float64: exact below 2**53, the pairs of a window of 100M rows.
        return np.bincount(ranks, weights=values, minlength=self.ranks).astype(np.int64)
