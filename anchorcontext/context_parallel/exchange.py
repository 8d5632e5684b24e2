"""Moving key and value rows between ranks, and their gradients back.

Shapes: Tl own rows, Tk keys of the stage's segments, K key heads, D head size. Key and value travel
together as rows [.., 2, K, D].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from anchorcontext.attention import accumulation_dtype

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from anchorcontext.context_parallel.context import DeviceStage


def gather_keys(key: Tensor, value: Tensor, stage: DeviceStage, group: ProcessGroup | None) -> tuple[Tensor, Tensor]:
    """Keys and values in the order of the stage's segments: [Tl, K, D] each -> [Tk, K, D] each."""
    if stage.key_rows is None and not stage.exchanges:
        return key, value
    rows = torch.stack((key, value), dim=1)  # [Tl, 2, K, D]
    if stage.exchanges:
        sent = rows.index_select(0, stage.send_rows)
        received = rows.new_empty(sum(stage.receive_counts), *rows.shape[1:])
        dist.all_to_all_single(received, sent, stage.receive_counts, stage.send_counts, group=group)
        rows = torch.cat((rows, received))
    if stage.key_rows is not None:
        rows = rows.index_select(0, stage.key_rows)
    return rows[:, 0], rows[:, 1]


def return_gradients(
    grad_key: Tensor,
    grad_value: Tensor,
    num_local_rows: int,
    dtype: torch.dtype,
    stage: DeviceStage,
    group: ProcessGroup | None,
) -> tuple[Tensor, Tensor]:
    """Gradients of `gather_keys`' results to gradients of its arguments: [Tk, K, D] -> [Tl, K, D].

    Sums are kept in the accumulation dtype; a row travels in `dtype`. Owners add what comes back
    rank by rank, in order, so that the result is the same in every run.
    """
    grads = torch.stack((grad_key, grad_value), dim=1).to(accumulation_dtype(dtype))  # [Tk, 2, K, D]
    if stage.key_rows is None and not stage.exchanges:
        return grads[:, 0], grads[:, 1]
    if stage.key_rows is not None:
        buffer = grads.new_zeros(num_local_rows + sum(stage.receive_counts), *grads.shape[1:])
        grads = buffer.index_copy_(0, stage.key_rows, grads)  # each row of the buffer is at most one key
    total, borrowed = grads[:num_local_rows], grads[num_local_rows:]
    if stage.exchanges:
        returned = borrowed.new_empty(len(stage.send_rows), *borrowed.shape[1:], dtype=dtype)
        dist.all_to_all_single(
            returned, borrowed.to(dtype).contiguous(), stage.send_counts, stage.receive_counts, group=group
        )
        lenders = zip(returned.split(stage.send_counts), stage.send_rows.split(stage.send_counts), strict=True)
        for part, rows in lenders:
            if len(rows):
                # A row goes to a rank once at most, so no two of `rows` are equal.
                total.index_copy_(0, rows, total.index_select(0, rows) + part)
    return total[:, 0], total[:, 1]
