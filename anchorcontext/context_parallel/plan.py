"""The context plan: which rank computes what and needs which rows, from piece lengths alone.

Pure arithmetic on the CPU: the same on every rank, made once per window (in a data loader's worker if
wanted) and used by every layer. It knows nothing of torch.distributed until it is bound.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from anchorcontext.context_parallel.costs import CostModel
from anchorcontext.context_parallel.exchanges import EXCHANGES
from anchorcontext.context_parallel.policies import POLICIES, auto_settings
from anchorcontext.context_parallel.rows import SegmentedRows, expand_ranges
from anchorcontext.context_parallel.sharding import Sharding
from anchorcontext.context_parallel.stages import Stage
from anchorcontext.layout import PADDING_SEGMENT, WindowLayout

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from anchorcontext.context_parallel.context import AttentionContext

_TIE = 1.01  # the cost model is no more precise than this


def plan_context(
    layout: WindowLayout,
    ranks: int,
    *,
    exchange: str = "gather",
    policy: str = "auto",
    costs: CostModel | None = None,
    max_gathered_rows: int | None = None,
) -> ContextPlan:
    """Plan attention over `layout` on `ranks` ranks.

    Args:
        layout: the window, or several concatenated windows.
        ranks: ranks that share it, at least 1. Any number of rows and any piece lengths work.
        exchange: one of `EXCHANGES`.
        policy: one of `POLICIES`, or `auto`, the cheapest of all. A policy with several settings
            takes the cheapest of them. Of plans within 1% of the cheapest, the one that moves the
            fewest rows is taken.
        costs: the costs by which `auto` and policies with settings choose (default: `CostModel()`).
        max_gathered_rows: plans that let a rank hold more received key and value rows at one time
            are rejected, 0 or more (default: no cap).

    Raises:
        ValueError: an exchange or policy that does not exist, naming those that do; a window or a
            policy that the exchange cannot handle; a cap that no plan meets, naming the smallest one.
    """
    if ranks < 1:
        raise ValueError(f"ranks={ranks}: a window is shared by at least 1 rank")
    if max_gathered_rows is not None and max_gathered_rows < 0:
        raise ValueError(f"max_gathered_rows={max_gathered_rows}: a rank cannot hold fewer than 0 received rows")
    if exchange not in EXCHANGES:
        raise ValueError(f"exchange={exchange!r} is not available; choose {', '.join(EXCHANGES)}")
    if policy != "auto" and policy not in POLICIES:
        raise ValueError(f"policy={policy!r} is not available; choose auto, {', '.join(POLICIES)}")
    if EXCHANGES[exchange].contiguous_only:
        if policy not in ("auto", "contiguous"):
            raise ValueError(f"exchange={exchange!r} needs policy='contiguous' (or auto), not {policy!r}")
        policy = "contiguous"
    if policy == "auto" and ranks == 1:
        policy = "contiguous"  # with one rank they are all the same
    costs = costs or CostModel()
    window = SegmentedRows.of(layout)
    EXCHANGES[exchange].check(window, ranks)
    settings = auto_settings(window, ranks) if policy == "auto" else [(policy, share) for share in POLICIES[policy]]
    plans = (
        ContextPlan(Sharding(window, share(window, ranks), ranks), exchange, name, costs, layout.digest)
        for name, share in settings
    )
    return _cheapest(plans, costs, max_gathered_rows)


def _cheapest(plans: Iterator[ContextPlan], costs: CostModel, max_gathered_rows: int | None) -> ContextPlan:
    """The cheapest plan under the cap. The search ends with one that no other can better by more than `_TIE`."""
    admitted: list[tuple[float, ContextPlan]] = []
    least_gathered: int | None = None
    for plan in plans:
        if max_gathered_rows is not None and plan.rows_gathered > max_gathered_rows:
            least_gathered = min(plan.rows_gathered, least_gathered or plan.rows_gathered)
            continue
        seconds = plan.seconds(costs)
        admitted.append((seconds, plan))
        if seconds <= _TIE * float(costs.compute_seconds(plan.pairs_by_rank).mean()):
            break
    if not admitted:
        raise ValueError(
            f"max_gathered_rows={max_gathered_rows}: of all plans of this window, the one that gathers least lets "
            f"a rank hold {least_gathered} received rows at one time; allow as many, or choose exchange='ring'"
        )
    limit = _TIE * min(seconds for seconds, _ in admitted)
    alike = [plan for seconds, plan in admitted if seconds <= limit]
    return min(alike, key=lambda plan: int(plan.rows_received_by_rank.sum()))


class ContextPlan:
    """Who holds, sends, receives and computes what. Made by `plan_context`.

    Equal plans have equal digests. Can be pickled.
    """

    def __init__(self, sharding: Sharding, exchange: str, policy: str, costs: CostModel, layout_digest: str) -> None:
        self.num_rows = sharding.num_rows
        self.ranks = sharding.ranks
        self.exchange = exchange
        self.policy = policy
        self.rows_per_rank = sharding.rows_per_rank
        self._sharding = sharding
        self._costs = costs
        self._layout_digest = layout_digest
        self._stages: dict[int, tuple[Stage, ...]] = {}

    def row_order(self, rank: int) -> Tensor:
        """Window rows in the order the rank holds them, int64 [T_local], -1 for padding.

        T_local = ceil(num_rows / ranks) on every rank; every window row is on one rank, the
        layout's own padding rows among them. With one rank: 0, 1, 2, ...
        """
        held = self._sharding.shares.of_rank(self._checked(rank))
        rows = np.full(self.rows_per_rank, -1, dtype=np.int64)
        used = expand_ranges(held.rows, held.lengths)
        rows[: len(used)] = used
        return torch.from_numpy(rows)

    def rows_received(self, rank: int) -> int:
        """Key and value rows the rank receives in a forward pass.

        For `ulysses`, which moves heads of queries, keys, values and outputs: as many numbers, counted
        in whole rows of keys and values. With Hq and Hkv heads (those of the cost model), m = Hq / P
        query heads and k key heads per rank: (P - 1) * T_local * (m + k) / Hkv, rounded up.
        """
        return int(self.rows_received_by_rank[self._checked(rank)])

    def work(self, rank: int) -> int:
        """Query-key pairs the rank computes."""
        return int(self.pairs_by_rank[self._checked(rank)])

    def stages(self, rank: int) -> tuple[Stage, ...]:
        """What the rank does, step by step: rows it exchanges, and segments it computes."""
        if self._checked(rank) not in self._stages:
            self._stages[rank] = EXCHANGES[self.exchange].stages(self._sharding, rank)
        return self._stages[rank]

    def padding_rows(self, rank: int) -> Tensor:
        """Which of the rank's rows belong to no segment, bool [T_local]."""
        held = self._sharding.shares.of_rank(self._checked(rank))
        padding = np.ones(self.rows_per_rank, dtype=bool)
        padding[: held.lengths.sum()] = np.repeat(held.segments == PADDING_SEGMENT, held.lengths)
        return torch.from_numpy(padding)

    @cached_property
    def sequence_bounds(self) -> np.ndarray:
        """Window rows where a run of one segment, or of padding, begins; and the end. int64."""
        return np.append(np.sort(self._sharding.window.rows), self.num_rows)

    def bind(
        self, group: ProcessGroup | None = None, *, kernel: str = "auto", head_groups: int | None = None
    ) -> AttentionContext:
        """The plan on this rank of `group`, to be handed to a model or to `packed_attention`.

        Args:
            group: the ranks that share the window, as many as planned for. None: one rank.
            kernel: `auto`, or a kernel's name.
            head_groups: in how many groups key heads are computed, each while the next one's rows
                travel; must divide them. None: 1 on a CPU and for `ring`, which has stages to
                overlap; else up to 4. The result is the same for any number.

        Raises:
            ValueError: a group of another size, an unknown kernel, or one that does not suit the exchange.
        """
        # The one import that points up: `context` imports this module, since a context is a bound plan. Users get it
        # by `plan.bind(group)`, which reads better than a constructor and is public.
        from anchorcontext.context_parallel.context import AttentionContext

        return AttentionContext(self, group, kernel=kernel, head_groups=head_groups)

    @cached_property
    def pairs_by_rank(self) -> np.ndarray:
        """`work` of every rank, int64 [ranks]."""
        return EXCHANGES[self.exchange].pairs(self._sharding)

    @cached_property
    def rows_received_by_rank(self) -> np.ndarray:
        """`rows_received` of every rank, int64 [ranks]."""
        return EXCHANGES[self.exchange].rows_received(self._sharding, self._costs)

    @property
    def rows_missing_by_rank(self) -> np.ndarray:
        """Rows that each rank's queries see and the rank does not hold, int64 [ranks]: the least to be moved."""
        return self._sharding.rows_missing

    @cached_property
    def rows_gathered(self) -> int:
        """The most received rows that a rank holds at one time."""
        return int(EXCHANGES[self.exchange].rows_gathered(self._sharding, self._costs).max())

    def seconds(self, costs: CostModel) -> float:
        """Modelled time of one attention layer, forward and backward, on the slowest rank."""
        pairs, rows = self.pairs_by_rank, self.rows_received_by_rank
        return float(EXCHANGES[self.exchange].seconds(costs, pairs, rows).max())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the layout and of everything the plan decides."""
        digest = hashlib.sha256(f"{self._layout_digest}:{self.ranks}:{self.exchange}".encode())
        for array in (self._sharding.shares.starts, self._sharding.shares.ranks):
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
