"""A plan on one rank: what a model is given as `attention_context`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from anchorcontext.attention import check_kernel_name, choose_kernel
from anchorcontext.context_parallel.device_stage import DeviceStage
from anchorcontext.context_parallel.executor import StagedAttention
from anchorcontext.context_parallel.plan import ContextPlan
from anchorcontext.context_parallel.ring_flash_attn import PackageAttention
from anchorcontext.context_parallel.shared_attention import SharedAttention
from anchorcontext.context_parallel.ulysses import HeadAttention

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class AttentionContext:
    """A `ContextPlan` bound to a rank. Made by `ContextPlan.bind`.

    Holds no state of a forward pass: any number of micro-batches may be in flight.
    """

    def __init__(
        self, plan: ContextPlan, group: ProcessGroup | None, *, kernel: str, head_groups: int | None = None
    ) -> None:
        check_kernel_name(kernel)
        if head_groups is not None and head_groups < 1:
            raise ValueError(f"head_groups={head_groups}: heads are computed in at least 1 group")
        if head_groups not in (None, 1) and plan.exchange == "ulysses":
            raise ValueError("exchange='ulysses' moves heads, not groups of them: leave head_groups out")
        size = 1 if group is None else dist.get_world_size(group)
        if size != plan.ranks:
            what = "no process group (one rank)" if group is None else f"a process group of {size} ranks"
            raise ValueError(f"a plan for {plan.ranks} ranks cannot be bound to {what}")
        self.plan = plan
        self.group = group
        self.rank = 0 if group is None else dist.get_rank(group)
        self.kernel = kernel
        self.head_groups = head_groups
        self._attention: dict[torch.device, SharedAttention] = {}

    @cached_property
    def rows(self) -> Tensor:
        """Window rows in the order this rank holds them, int64 [T_local], -1 for padding."""
        return self.plan.row_order(self.rank)

    def attention_on(self, device: torch.device) -> SharedAttention:
        """This rank's part of the plan, its indices on `device`."""
        if device not in self._attention:
            self._attention[device] = self._make_attention(device)
        return self._attention[device]

    def prepare(self, device: torch.device, dtype: torch.dtype) -> None:
        """Move the plan's indices to `device` now, once, rather than in the first layer; no collective.

        Args:
            dtype: of the values that will be attended to; decides the kernel where it is `auto`.

        Raises:
            ValueError: a kernel or an exchange that the device does not have.
        """
        self.attention_on(device)
        kernel = choose_kernel(self.kernel, device, dtype)
        for stage in self.plan.stages(self.rank):
            kernel.prepare(stage.segments, device)

    def _make_attention(self, device: torch.device) -> SharedAttention:
        plan, group = self.plan, self.group
        stages = tuple(DeviceStage.of(stage, device) for stage in plan.stages(self.rank))
        if group is None or plan.exchange in ("gather", "ring"):
            return StagedAttention(stages, group, self.head_groups, point_to_point=plan.exchange == "ring")
        if plan.exchange == "ulysses":
            return HeadAttention(StagedAttention(stages), group, plan.num_rows)
        return PackageAttention(plan, group, self.rank, device, self.head_groups)

    def check_agreement(self) -> None:
        """Compare the plan and how it is bound across the group's ranks; every rank must call it.

        Ranks with different plans or head groups would hang in an exchange or compute wrong results.

        Raises:
            RuntimeError: on every rank, naming the ranks that differ from rank 0.
        """
        if self.group is None:
            return
        own = {"plan": self.plan.digest, "head_groups": self.head_groups, "kernel": self.kernel}
        everyones: list[Any] = [None] * self.plan.ranks
        dist.all_gather_object(everyones, own, group=self.group)
        for what in own:
            unlike = [rank for rank, theirs in enumerate(everyones) if theirs[what] != everyones[0][what]]
            if unlike:
                raise RuntimeError(
                    f"ranks {unlike} of the context-parallel group hold a different {what} than rank 0: "
                    "they were given a different window, or different options"
                )

    def __getstate__(self) -> dict[str, Any]:
        if self.group is not None:
            raise TypeError(
                "an AttentionContext bound to a process group cannot be pickled: load plans in the data "
                "loader's workers, and bind them in the process that computes (or use num_workers=0)"
            )
        return {**self.__dict__, "_attention": {}}

    def __repr__(self) -> str:
        return f"AttentionContext({self.plan!r}, rank={self.rank}, kernel={self.kernel!r})"
