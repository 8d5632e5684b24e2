"""A plan on one rank: what a model is given as `attention_context`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from anchorcontext.attention import Segments, check_kernel_name
from anchorcontext.context_parallel.stages import Stage

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from anchorcontext.context_parallel.plan import ContextPlan


class AttentionContext:
    """A `ContextPlan` bound to a rank. Made by `ContextPlan.bind`.

    Holds no state of a forward pass: any number of micro-batches may be in flight.
    """

    def __init__(self, plan: ContextPlan, group: ProcessGroup | None, *, kernel: str) -> None:
        check_kernel_name(kernel)
        size = 1 if group is None else dist.get_world_size(group)
        if size != plan.ranks:
            what = "no process group (one rank)" if group is None else f"a process group of {size} ranks"
            raise ValueError(f"a plan for {plan.ranks} ranks cannot be bound to {what}")
        self.plan = plan
        self.group = group
        self.rank = 0 if group is None else dist.get_rank(group)
        self.kernel = kernel
        self._stages: dict[torch.device, tuple[DeviceStage, ...]] = {}

    @cached_property
    def rows(self) -> Tensor:
        """Window rows in the order this rank holds them, int64 [T_local], -1 for padding."""
        return self.plan.row_order(self.rank)

    def stages_on(self, device: torch.device) -> tuple[DeviceStage, ...]:
        """The plan's stages of this rank, their indices on `device`."""
        if device not in self._stages:
            self._stages[device] = tuple(DeviceStage.of(stage, device) for stage in self.plan.stages(self.rank))
        return self._stages[device]

    def check_agreement(self) -> None:
        """Compare the plan across the group's ranks; every rank must call it.

        Ranks with unlike plans would hang in an exchange, or compute something else.

        Raises:
            RuntimeError: on every rank, naming the ranks whose plan differs from rank 0's.
        """
        if self.group is None:
            return
        digests: list[Any] = [None] * self.plan.ranks
        dist.all_gather_object(digests, self.plan.digest, group=self.group)
        unlike = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
        if unlike:
            raise RuntimeError(
                f"ranks {unlike} of the context-parallel group hold another plan than rank 0: "
                "they were given another window, or other planning options"
            )

    def __getstate__(self) -> dict[str, Any]:
        if self.group is not None:
            raise TypeError(
                "an AttentionContext bound to a process group cannot be pickled: load plans in the data "
                "loader's workers, and bind them in the process that computes (or use num_workers=0)"
            )
        return {**self.__dict__, "_stages": {}}

    def __repr__(self) -> str:
        return f"AttentionContext({self.plan!r}, rank={self.rank}, kernel={self.kernel!r})"


@dataclass(frozen=True, eq=False)
class DeviceStage:
    """A `Stage` whose indices are tensors on the device that computes."""

    send_rows: Tensor
    send_counts: list[int]
    receive_counts: list[int]
    exchanges: bool
    key_rows: Tensor | None
    segments: Segments

    @classmethod
    def of(cls, stage: Stage, device: torch.device) -> DeviceStage:
        key_rows = None if stage.key_rows is None else torch.from_numpy(stage.key_rows).to(device)
        return cls(
            send_rows=torch.from_numpy(stage.send_rows).to(device),
            send_counts=stage.send_counts,
            receive_counts=stage.receive_counts,
            exchanges=stage.exchanges,
            key_rows=key_rows,
            segments=stage.segments,
        )

    @classmethod
    def local(cls, segments: Segments) -> DeviceStage:
        """A stage without an exchange, over the rows that are there."""
        return cls(torch.empty(0, dtype=torch.int64), [], [], False, None, segments)
