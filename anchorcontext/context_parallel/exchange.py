"""Moving key and value rows between ranks, and their gradients back.

A transfer starts when it is created and is waited for when its rows are needed, so that computation
goes on meanwhile. On a GPU the communication library runs transfers on a stream of its own and waiting
blocks the computing stream, not the process.

Shapes: Tl own rows, R received rows, Tk keys of the stage's segments, K key heads, D head size. Key
and value travel together as rows [.., 2, K, D].
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from anchorcontext.attention import accumulation_dtype
from anchorcontext.context_parallel.device_stage import DeviceStage

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class KeyTransfer:
    """Keys and values of a stage in transit: [Tl, K, D] each."""

    def __init__(self, key: Tensor, value: Tensor, stage: DeviceStage, group: ProcessGroup | None) -> None:
        self._own = (key, value)
        self._stage = stage
        self._transfer: _Transfer | None = None
        if stage.exchanges:
            sent = torch.stack([rows.index_select(0, stage.send_rows) for rows in (key, value)], dim=1)
            self._transfer = _Transfer(sent, stage.send_counts, stage.receive_counts, stage.peers, group)

    def wait(self) -> tuple[Tensor, Tensor]:
        """In the order of the stage's segments: [Tk, K, D] each."""
        received = None if self._transfer is None else self._transfer.wait()  # [R, 2, K, D]
        key, value = (self._keys(rows, received, which) for which, rows in enumerate(self._own))
        return key, value

    def _keys(self, own: Tensor, received: Tensor | None, which: int) -> Tensor:
        rows = own
        if received is not None:
            rows = torch.cat((own, received[:, which])) if self._stage.uses_own else received[:, which]
        return rows if self._stage.key_rows is None else rows.index_select(0, self._stage.key_rows)


class GradientReturn:
    """Gradients of a stage's keys and values on their way to the rows' owners.

    Sums are kept in the accumulation dtype; a row travels in `dtype`.

    Args:
        grad_key, grad_value: [Tk, K, D] each.
        num_local_rows: Tl.
    """

    def __init__(
        self,
        grad_key: Tensor,
        grad_value: Tensor,
        num_local_rows: int,
        dtype: torch.dtype,
        stage: DeviceStage,
        group: ProcessGroup | None,
    ) -> None:
        self._stage = stage
        self._transfer: _Transfer | None = None
        grads = torch.stack((grad_key, grad_value), dim=1).to(accumulation_dtype(dtype))  # [Tk, 2, K, D]
        own_rows = num_local_rows if stage.uses_own else 0
        if stage.key_rows is not None:
            buffer = grads.new_zeros(own_rows + sum(stage.receive_counts), *grads.shape[1:])
            grads = buffer.index_copy_(0, stage.key_rows, grads)  # each row of the buffer is at most one key
        self._own, borrowed = grads[:own_rows], grads[own_rows:]
        if stage.exchanges:
            peers = None if stage.peers is None else (stage.peers[1], stage.peers[0])
            self._transfer = _Transfer(borrowed.to(dtype), stage.receive_counts, stage.send_counts, peers, group)

    def add_to(self, total: Tensor) -> None:
        """Add to the gradients of the own rows, [Tl, 2, K, D] in the accumulation dtype.

        What comes back is added rank by rank, in order, so that the result is the same in every run.
        """
        if self._stage.uses_own:
            total += self._own
        if self._transfer is None:
            return
        counts = self._stage.send_counts
        parts = zip(self._transfer.wait().split(counts), self._stage.send_rows.split(counts), strict=True)
        for part, rows in parts:
            if len(rows):
                # A row goes to a rank at most once, so `rows` are distinct.
                total.index_copy_(0, rows, total.index_select(0, rows) + part)


class _Transfer:
    """Rows to and from other ranks, in transit from construction on.

    Args:
        rows: to send, by receiving rank: [sum(send_counts), ...].
        peers: the rank to send to and the rank to receive from. None: all ranks take part.
    """

    def __init__(
        self,
        rows: Tensor,
        send_counts: list[int],
        receive_counts: list[int],
        peers: tuple[int, int] | None,
        group: ProcessGroup | None,
    ) -> None:
        self._sent = rows.contiguous()  # kept alive until it is sent
        self._received = rows.new_empty(sum(receive_counts), *rows.shape[1:])
        self._works: Sequence[Any]
        if peers is None:
            self._works = [
                dist.all_to_all_single(
                    self._received, self._sent, receive_counts, send_counts, group=group, async_op=True
                )
            ]
        else:
            self._works = _send_receive(self._sent, self._received, peers, group)

    def wait(self) -> Tensor:
        """The received rows, by sending rank."""
        for work in self._works:
            work.wait()
        return self._received


def _send_receive(sent: Tensor, received: Tensor, peers: tuple[int, int], group: ProcessGroup | None) -> Sequence[Any]:
    to, sender = (dist.get_global_rank(group, rank) if group is not None else rank for rank in peers)
    operations = []
    if len(sent):
        operations.append(dist.P2POp(dist.isend, sent, to, group))
    if len(received):
        operations.append(dist.P2POp(dist.irecv, received, sender, group))
    return dist.batch_isend_irecv(operations) if operations else []


@lru_cache(maxsize=16)
def connect(group: ProcessGroup, device: torch.device) -> None:
    """Connect a group's ranks: NCCL sets up a group in its first operation, in which all ranks must take part.

    Point-to-point operations cannot serve as that one, since ranks with nothing to send skip them.
    """
    dist.all_reduce(torch.zeros(1, device=device), group=group)
