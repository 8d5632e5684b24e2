"""The rows of each step that this rank computes, made on the CPU one step ahead.

Step s (from 1) of B windows uses the global numbers [(s-1)*B, s*B) of the data order, for any number
of ranks. Data-parallel rank d takes the d-th contiguous part of them, split into micro-batches; the
windows of a micro-batch are concatenated in one row, which the ranks of a context-parallel group
share as the context plan says.

A batch and its plans' indices reach the device once, before the step: a GPU's are copied from pinned
memory while the step before is computed, and no layer waits for a copy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorcontext.attention import to_device
from anchorcontext.config.schema import TrainConfig
from anchorcontext.context_parallel import AttentionContext, ContextPlan, CostModel, take_rows
from anchorcontext.data.order import DataState, WindowOrder
from anchorcontext.data.windows import PackedWindows, Window
from anchorcontext.errors import RunError
from anchorcontext.figures import counted
from anchorcontext.layout import IGNORED_LABEL, WindowLayout
from anchorcontext.models.build import DTYPES
from anchorcontext.models.planning import plan_window
from anchorcontext.train.ranks import Ranks


@dataclass(frozen=True)
class MicroBatch:
    """What one forward pass of this rank reads: int64 [1, T_local] each, and its attention context."""

    input_ids: Tensor
    position_ids: Tensor
    labels: Tensor
    context: AttentionContext


@dataclass(frozen=True)
class StepBatch:
    """This rank's share of a step.

    Attributes:
        step: from 1.
        valid_labels: labels this rank computes a loss for.
        tokens: rows this rank holds that are not padding.
        digest: of all tokens and plans of its data-parallel rank, the same in a context-parallel group.
    """

    step: int
    micro_batches: list[MicroBatch]
    valid_labels: int
    tokens: int
    digest: str


@dataclass(frozen=True)
class _Rows:
    """A micro-batch before it is bound to a process group and a device."""

    plan: ContextPlan
    input_ids: Tensor
    position_ids: Tensor
    labels: Tensor
    tokens: int
    digest: str


class Batches:
    """Batches of a run, by step."""

    def __init__(
        self, windows: PackedWindows, config: TrainConfig, ranks: Ranks, costs: CostModel | None = None
    ) -> None:
        self.windows = windows
        self.windows_per_step = config.training.windows_per_step
        self.order = WindowOrder(
            windows.index_hash,
            config.training.seed,
            len(windows),
            balance_steps=config.order.balance_steps,
            windows_per_step=self.windows_per_step,
            work=windows.attention_work,
        )
        self.windows_per_rank = self.windows_per_step // ranks.data_size
        self.windows_per_micro_batch = config.training.micro_batch_windows
        self.micro_batches = self.windows_per_rank // self.windows_per_micro_batch
        self._config = config
        self._ranks = ranks
        self._costs = costs or CostModel()

    def steps(self, first: int, last: int) -> Iterator[StepBatch]:
        """Batches of steps `first` to `last`, both included; the next is made and copied while one is used."""
        if first > last:
            return
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches") as maker:
            upcoming = maker.submit(self._ready, first)
            for step in range(first, last + 1):
                batch = upcoming.result()
                if step < last:
                    upcoming = maker.submit(self._ready, step + 1)
                yield batch

    def state_after(self, step: int) -> DataState:
        """Where the run stands in its data once a step is taken."""
        return self.order.state(step * self.windows_per_step)

    def describe(self, steps: int) -> str:
        """How far a run of that many steps goes, in tokens and epochs, and whether windows repeat."""
        taken, there = steps * self.windows_per_step, len(self.windows)
        epochs = f"{taken / there:.2f} epochs of the index's {there:,} windows"
        repeated = "" if taken <= there else f": windows are seen up to {-(-taken // there)} times"
        tokens = taken * self.windows.window_tokens
        planned = f"{counted(steps, 'step')} x {counted(self.windows_per_step, 'window')}"
        return f"{planned} = up to {tokens:,} tokens, {epochs}{repeated}"

    def window_numbers(self, step: int) -> list[int]:
        """Windows of the index that this data-parallel rank computes at a step."""
        first = (step - 1) * self.windows_per_step + self._ranks.data_rank * self.windows_per_rank
        return self.order.windows(first, first + self.windows_per_rank).tolist()

    def _ready(self, step: int) -> StepBatch:
        """A step's batch on this rank's device, in the maker's thread: copies to a GPU hold up nobody else."""
        device = self._ranks.device
        if device.type == "cuda":
            torch.cuda.set_device(device)  # the current device is each thread's own
        return self._place(step, self._make(step))

    def _make(self, step: int) -> list[_Rows]:
        numbers = self.window_numbers(step)
        size = self.windows_per_micro_batch
        return [self._rows(numbers[start : start + size]) for start in range(0, len(numbers), size)]

    def _rows(self, numbers: list[int]) -> _Rows:
        windows = [self.windows[number] for number in numbers]
        layout = WindowLayout.concatenate([window.layout(self._config.attention.arm) for window in windows])
        ids = torch.cat([window.input_ids for window in windows])
        mask = torch.cat([_loss_mask(window) for window in windows])
        plan = plan_window(layout, self._config.context_parallel, self._costs)
        order = plan.row_order(self._ranks.context_rank)
        return _Rows(
            plan=plan,
            input_ids=take_rows(ids, order, self.windows.anchor_id)[None],
            position_ids=take_rows(layout.position_ids, order, 0)[None],
            labels=take_rows(layout.shift_labels(ids, mask), order, IGNORED_LABEL)[None],
            tokens=int((take_rows(layout.segment_ids, order, -1) >= 0).sum()),
            digest=hashlib.sha256(ids.numpy().tobytes() + plan.digest.encode()).hexdigest(),
        )

    def _place(self, step: int, made: list[_Rows]) -> StepBatch:
        return StepBatch(
            step=step,
            micro_batches=[self._bind(rows) for rows in made],
            valid_labels=sum(int((rows.labels != IGNORED_LABEL).sum()) for rows in made),
            tokens=sum(rows.tokens for rows in made),
            digest="".join(rows.digest for rows in made),
        )

    def _bind(self, rows: _Rows) -> MicroBatch:
        device, config = self._ranks.device, self._config
        context = rows.plan.bind(
            self._ranks.context_group, kernel=config.attention.kernel, head_groups=config.context_parallel.head_groups
        )
        context.prepare(device, DTYPES[config.training.precision])
        return MicroBatch(
            input_ids=to_device(rows.input_ids, device),
            position_ids=to_device(rows.position_ids, device),
            labels=to_device(rows.labels, device),
            context=context,
        )


def check_shared(batch: StepBatch, ranks: Ranks) -> None:
    """Refuse to train if ranks that share windows have read different tokens.

    Raises:
        RunError: on every rank, naming the ranks.
    """
    digests = ranks.gather(batch.digest)
    for rank, digest in enumerate(digests):
        first = rank - rank % ranks.context_size
        if digest != digests[first]:
            raise RunError(
                f"step {batch.step}: ranks {first} and {rank} share windows, but have read different tokens; "
                "give every node the same data.index and data.store"
            )


def _loss_mask(window: Window) -> Tensor:
    if window.loss_mask is None:
        return torch.ones(len(window.input_ids), dtype=torch.bool)
    return window.loss_mask
