"""The context plan: which rank computes what and needs which rows, from piece lengths alone.

Pure arithmetic on the CPU: the same on every rank, made once a window (in a data loader's worker if
wanted) and used by every layer. It knows nothing of torch.distributed until it is bound.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from anchorcontext.context_parallel.costs import CostModel
from anchorcontext.context_parallel.policies import POLICIES
from anchorcontext.context_parallel.rows import SegmentedRows, Shares, expand_ranges
from anchorcontext.context_parallel.stages import KeyReach, Stage, gather_stage
from anchorcontext.layout import WindowLayout

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from anchorcontext.context_parallel.context import AttentionContext

EXCHANGES = ("gather",)
"""How keys and values move: `gather`, every needed row in one all-to-all."""


def plan_context(
    layout: WindowLayout,
    ranks: int,
    *,
    exchange: str = "gather",
    policy: str = "auto",
    costs: CostModel | None = None,
) -> ContextPlan:
    """Plan attention over `layout` on `ranks` ranks.

    Args:
        layout: the window, or several windows behind one another.
        ranks: ranks that share it, at least 1. Any number of rows and any piece lengths will do.
        exchange: one of `EXCHANGES`.
        policy: `contiguous`, `zigzag`, or `auto`, the one that `costs` finds cheaper.
        costs: for `auto` (default: `CostModel()`).

    Raises:
        ValueError: an exchange or policy that does not exist, naming those that do.
    """
    if ranks < 1:
        raise ValueError(f"ranks={ranks}: a window is shared by at least 1 rank")
    if exchange not in EXCHANGES:
        raise ValueError(f"exchange={exchange!r} is not available; choose {', '.join(EXCHANGES)}")
    if policy != "auto" and policy not in POLICIES:
        raise ValueError(f"policy={policy!r} is not available; choose auto, {', '.join(POLICIES)}")
    window = SegmentedRows.of(layout)
    if policy == "auto" and ranks == 1:
        policy = next(iter(POLICIES))  # with one rank they are all the same
    names = list(POLICIES) if policy == "auto" else [policy]
    plans = [ContextPlan(window, POLICIES[name](window, ranks), ranks, exchange, name, layout.digest) for name in names]
    if len(plans) == 1:
        return plans[0]
    costs = costs or CostModel()
    return min(plans, key=lambda plan: costs.seconds(plan.pairs_by_rank, plan.rows_received_by_rank))


class ContextPlan:
    """Who holds, sends, receives and computes what. Made by `plan_context`.

    Equal plans have equal digests. Can be pickled.
    """

    def __init__(
        self,
        window: SegmentedRows,
        shares: Shares,
        ranks: int,
        exchange: str,
        policy: str,
        layout_digest: str,
    ) -> None:
        self.num_rows = window.num_rows
        self.ranks = ranks
        self.exchange = exchange
        self.policy = policy
        self.rows_per_rank = -(-window.num_rows // ranks)
        self._segment_offsets = window.segment_offsets
        self._shares = shares
        self._layout_digest = layout_digest
        self._stages: dict[int, tuple[Stage, ...]] = {}

    def row_order(self, rank: int) -> Tensor:
        """Window rows in the order the rank holds them, int64 [T_local], -1 for padding.

        T_local = ceil(num_rows / ranks) on every rank; every window row is on one rank, the
        layout's own padding rows among them. With one rank: 0, 1, 2, ...
        """
        held = self._shares.of_rank(self._checked(rank))
        rows = np.full(self.rows_per_rank, -1, dtype=np.int64)
        used = expand_ranges(held.rows, held.lengths)
        rows[: len(used)] = used
        return torch.from_numpy(rows)

    def rows_received(self, rank: int) -> int:
        """Key and value rows the rank receives in a forward pass."""
        return int(self.rows_received_by_rank[self._checked(rank)])

    def work(self, rank: int) -> int:
        """Query-key pairs the rank computes."""
        return int(self.pairs_by_rank[self._checked(rank)])

    def stages(self, rank: int) -> tuple[Stage, ...]:
        """What the rank does, step by step: rows it exchanges, and segments it computes."""
        if rank not in self._stages:
            stage = gather_stage(
                self._shares, self._reach, self._segment_offsets, self._checked(rank), self.ranks, self.rows_per_rank
            )
            self._stages[rank] = (stage,)
        return self._stages[rank]

    def bind(self, group: ProcessGroup | None = None, *, kernel: str = "auto") -> AttentionContext:
        """The plan on this rank of `group`, to be handed to a model or to `packed_attention`.

        Args:
            group: the ranks that share the window, as many as planned for. None: one rank.
            kernel: `auto`, or a kernel's name.

        Raises:
            ValueError: a group of another size, or an unknown kernel.
        """
        from anchorcontext.context_parallel.context import AttentionContext

        return AttentionContext(self, group, kernel=kernel)

    @cached_property
    def pairs_by_rank(self) -> np.ndarray:
        """`work` of every rank, int64 [ranks]."""
        shares = self._shares.of_segments()
        first = shares.starts - self._segment_offsets[shares.segments]  # keys before the first query
        last = shares.ends - self._segment_offsets[shares.segments]
        pairs = (last * (last + 1) - first * (first + 1)) // 2
        return _sum_by_rank(pairs, shares.ranks, self.ranks)

    @cached_property
    def rows_received_by_rank(self) -> np.ndarray:
        """`rows_received` of every rank, int64 [ranks]."""
        reach = self._reach
        needed = _sum_by_rank(reach.ends - self._segment_offsets[reach.segments], reach.ranks, self.ranks)
        shares = self._shares.of_segments()
        return needed - _sum_by_rank(shares.lengths, shares.ranks, self.ranks)

    @cached_property
    def _reach(self) -> KeyReach:
        return KeyReach.of(self._shares, self.ranks)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the layout and of everything the plan decides."""
        digest = hashlib.sha256(f"{self._layout_digest}:{self.ranks}:{self.exchange}".encode())
        for array in (self._shares.starts, self._shares.ranks):
            digest.update(len(array).to_bytes(8, "little"))
            digest.update(array.astype("<i8").tobytes())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ContextPlan) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return (
            f"ContextPlan(num_rows={self.num_rows}, ranks={self.ranks}, exchange={self.exchange!r}, "
            f"policy={self.policy!r}, rows_per_rank={self.rows_per_rank})"
        )

    def _checked(self, rank: int) -> int:
        if not 0 <= rank < self.ranks:
            raise ValueError(f"rank {rank} is not one of the plan's {self.ranks} ranks")
        return rank


def _sum_by_rank(values: np.ndarray, ranks: np.ndarray, num_ranks: int) -> np.ndarray:
    # Weights are summed in float64: exact below 2**53, the pairs of a window of 100M rows.
    return np.bincount(ranks, weights=values, minlength=num_ranks).astype(np.int64)
