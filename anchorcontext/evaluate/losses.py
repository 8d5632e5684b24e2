"""Losses of packed windows: the rows, masks, positions and kernels of training, on any number of ranks.

The ranks of a context-parallel group share each window; groups take windows in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor
from transformers import PreTrainedModel

from anchorcontext.config.schema import ContextParallelConfig
from anchorcontext.context_parallel import take_rows
from anchorcontext.data.windows import PackedWindows
from anchorcontext.layout import IGNORED_LABEL
from anchorcontext.models.loss import token_losses
from anchorcontext.models.planning import cost_model, plan_window
from anchorcontext.train.ranks import Ranks


@dataclass(frozen=True)
class LossOptions:
    """How losses are computed.

    Attributes:
        arm: attention arm.
        kernel: attention kernel.
        loss_chunk_rows: rows whose logits are held at once.
    """

    arm: str = "anchor"
    kernel: str = "auto"
    context_parallel: ContextParallelConfig = field(default_factory=ContextParallelConfig)
    loss_chunk_rows: int = 1024


@dataclass(frozen=True)
class WindowLosses:
    """What this rank computed of one window.

    Attributes:
        window: its number in the index.
        rows: window rows with a label, int64 [labels of this rank].
        losses: of those labels, float32 [labels of this rank], in nats.
    """

    window: int
    rows: Tensor
    losses: Tensor


def shortage_note(asked_for: int, available: int) -> str | None:
    """Says that the split has fewer windows than were asked for; None where it has enough.

    Args:
        asked_for: `windows` of the config; 0 asks for all.
        available: windows of the split.
    """
    if asked_for <= available:
        return None
    were = "1 window was" if asked_for == 1 else f"{asked_for:,} windows were"
    all_of_them = "it is" if available == 1 else f"all {available:,} are"
    return f"{were} asked for; the split has {available:,}: {all_of_them} evaluated"


def window_losses(
    model: PreTrainedModel, windows: PackedWindows, count: int, options: LossOptions, ranks: Ranks
) -> Iterator[WindowLosses]:
    """Losses of this rank's share of the first `count` windows, each as soon as it is computed."""
    for number in range(count)[ranks.data_rank :: ranks.data_size]:
        yield _losses_of(number, model, windows, options, ranks)


def _losses_of(
    number: int, model: PreTrainedModel, windows: PackedWindows, options: LossOptions, ranks: Ranks
) -> WindowLosses:
    window = windows[number]
    layout = window.layout(options.arm)
    sharing = options.context_parallel
    plan = plan_window(layout, sharing, cost_model(sharing, model.config, model.dtype.itemsize))
    context = plan.bind(ranks.context_group, kernel=options.kernel, head_groups=sharing.head_groups)
    labels = take_rows(layout.shift_labels(window.input_ids, window.loss_mask), context.rows, IGNORED_LABEL)
    losses = token_losses(
        model,
        take_rows(window.input_ids, context.rows, windows.anchor_id)[None].to(ranks.device),
        take_rows(layout.position_ids, context.rows, 0)[None].to(ranks.device),
        labels[None].to(ranks.device),
        context,
        options.loss_chunk_rows,
    )
    valid = labels != IGNORED_LABEL
    return WindowLosses(number, context.rows[valid], losses.cpu()[valid])
