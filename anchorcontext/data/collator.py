"""Packed batches for Hugging Face Trainer, TRL and custom loops.

A batch is one row that holds every document of its items, with an attention context that says which
row belongs to which document. It holds no attention mask, and nothing is guessed from position ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from anchorcontext.context_parallel import CostModel, plan_context, take_rows
from anchorcontext.layout import IGNORED_LABEL, WindowLayout

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_LAYOUT_KEYS = ("document_ids", "starts", "prefix_lengths")


class AnchorCollator:
    """Collates windows or documents into one packed row: `Trainer(..., data_collator=AnchorCollator())`.

    Items are windows that are already packed, either what `PackedWindows` yields or a mapping with
    `input_ids` and `piece_lengths` (and, if wanted, `document_ids`, `starts`, `prefix_lengths`, as
    `WindowLayout` takes them). With `anchor_id`, items are documents instead: mappings with
    `input_ids`, each of which becomes one piece that begins with the anchor. Items may hold a `loss_mask`,
    or `labels` that are the item's own ids or -100; what is masked is not learned.

    The batch: `input_ids`, `position_ids`, `labels` and `shift_labels`, int64 [1, T], and
    `attention_context`, all to be passed to the model. `shift_labels` are what counts: row i holds
    the target of row i. `labels` are the same, moved one row on, so that a loss that shifts by
    itself ends with the same targets.

    In Trainer set `remove_unused_columns=False`: it would drop `piece_lengths` before the collator.

    Args:
        arm: attention recipe, one of `anchorcontext.layout.ARMS`.
        anchor_id: take items as documents and put this token first in each, unless it is there.
        end_id: end each document with this token, unless it is there; for documents only.
        group: ranks that share every batch; each must be given the same items, and gets its part of
            the row. None: each rank has its own. Its batches cannot come from loader workers.
        exchange, policy, costs, max_gathered_rows: as in `plan_context`.
        kernel, head_groups: as in `ContextPlan.bind`.
    """

    def __init__(
        self,
        *,
        arm: str = "anchor",
        anchor_id: int | None = None,
        end_id: int | None = None,
        group: ProcessGroup | None = None,
        exchange: str = "gather",
        policy: str = "auto",
        costs: CostModel | None = None,
        max_gathered_rows: int | None = None,
        kernel: str = "auto",
        head_groups: int | None = None,
    ) -> None:
        if end_id is not None and anchor_id is None:
            raise ValueError("end_id is for items that are documents: give anchor_id too, or pack with the ends in")
        self.arm = arm
        self.anchor_id = anchor_id
        self.end_id = end_id
        self.group = group
        self.plan_options: dict[str, Any] = {
            "exchange": exchange,
            "policy": policy,
            "costs": costs,
            "max_gathered_rows": max_gathered_rows,
        }
        self.bind_options: dict[str, Any] = {"kernel": kernel, "head_groups": head_groups}

    def __call__(self, items: Sequence[Any]) -> dict[str, Any]:
        """One packed row from `items`.

        Raises:
            ValueError: items without pieces, or lengths that contradict each other.
        """
        if not items:
            raise ValueError("a batch needs at least one item")
        parts = [self._part(item) for item in items]
        ids, masks = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        layout = WindowLayout.concatenate([part[2] for part in parts])
        ranks = 1 if self.group is None else dist.get_world_size(self.group)
        context = plan_context(layout, ranks, **self.plan_options).bind(self.group, **self.bind_options)
        shift_labels = take_rows(layout.shift_labels(ids, masks), context.rows, IGNORED_LABEL)
        labels = shift_labels.roll(1)
        labels[:1] = IGNORED_LABEL
        return {
            "input_ids": take_rows(ids, context.rows, int(ids[0]))[None],
            "position_ids": take_rows(layout.position_ids, context.rows, 0)[None],
            "labels": labels[None],
            "shift_labels": shift_labels[None],
            "attention_context": context,
        }

    def _part(self, item: Any) -> tuple[Tensor, Tensor, WindowLayout]:
        """Ids [N], what is to be learned [N] and layout of one item."""
        if isinstance(item, Mapping):
            ids = _vector(item["input_ids"], torch.int64)
            mask = _learned(item, ids)
            if self.anchor_id is not None:
                return self._document(item, ids, mask)
            return ids, mask, self._layout(item, len(ids))
        ids = item.input_ids
        mask = torch.ones(len(ids), dtype=torch.bool) if item.loss_mask is None else item.loss_mask
        return ids, mask, item.layout(self.arm)

    def _layout(self, item: Mapping[str, Any], num_rows: int) -> WindowLayout:
        if item.get("piece_lengths") is None:
            raise ValueError(
                "an item has no piece_lengths, so its documents are unknown. If Trainer dropped them, set "
                "remove_unused_columns=False; if items are single documents, give AnchorCollator an anchor_id"
            )
        given = {key: item[key] for key in _LAYOUT_KEYS if item.get(key) is not None}
        return WindowLayout(item["piece_lengths"], arm=self.arm, num_rows=num_rows, **given)

    def _document(self, item: Mapping[str, Any], ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, WindowLayout]:
        if item.get("piece_lengths") is not None:
            raise ValueError("an item has piece_lengths, but with an anchor_id items are single documents: give one")
        if len(ids) == 0 or ids[0] != self.anchor_id:
            ids, mask = _extended(ids, mask, self.anchor_id, at_end=False)
        if self.end_id is not None and ids[-1] != self.end_id:
            ids, mask = _extended(ids, mask, self.end_id, at_end=True)
        return ids, mask, WindowLayout([len(ids)], arm=self.arm)


def _learned(item: Mapping[str, Any], ids: Tensor) -> Tensor:
    """Which tokens of an item are learned, bool [N]."""
    mask = torch.ones(len(ids), dtype=torch.bool)
    for key in ("loss_mask", "labels", "attention_mask"):
        if item.get(key) is not None and len(item[key]) != len(ids):
            raise ValueError(f"an item has {len(item[key])} {key} for {len(ids)} input_ids")
    if item.get("attention_mask") is not None and not bool(_vector(item["attention_mask"], torch.bool).all()):
        raise ValueError("an item's attention_mask has zeros: give the collator items without padding")
    if item.get("loss_mask") is not None:
        mask &= _vector(item["loss_mask"], torch.bool)
    if item.get("labels") is not None:
        labels = _vector(item["labels"], torch.int64)
        kept = labels != IGNORED_LABEL
        if not torch.equal(labels[kept], ids[kept]):
            raise ValueError("an item's labels are neither its input_ids nor -100: give them unshifted, row by row")
        mask &= kept
    return mask


def _extended(ids: Tensor, mask: Tensor, token: int | None, *, at_end: bool) -> tuple[Tensor, Tensor]:
    """Ids and mask with one more learned token."""
    one = torch.tensor([token], dtype=ids.dtype), torch.ones(1, dtype=torch.bool)
    pairs = zip((ids, mask), one, strict=True)
    new_ids, new_mask = (torch.cat((old, new) if at_end else (new, old)) for old, new in pairs)
    return new_ids, new_mask


def _vector(values: Any, dtype: torch.dtype) -> Tensor:
    return torch.as_tensor(values).to(dtype).reshape(-1)
