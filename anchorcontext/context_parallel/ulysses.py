"""Exchange `ulysses`: an all-to-all between rows and heads (DeepSpeed-Ulysses, arXiv 2309.14509).

Each rank sends every other rank that rank's heads of its rows, computes its own heads on the whole
window, and gets its rows of all heads back. Nothing depends on document lengths.

Shapes: P ranks, Tl own rows, m query heads and k key heads per rank, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from anchorcontext.attention import ForwardPass, Kernel, accumulation_dtype
from anchorcontext.context_parallel.executor import StagedAttention
from anchorcontext.context_parallel.heads import key_heads_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@dataclass(frozen=True, eq=False)
class HeadAttention:
    """Attention by giving each rank some heads of all rows.

    Attributes:
        whole: attention of one rank over the window.
        num_rows: rows of the window; the last ranks' rows beyond it are padding.
    """

    whole: StagedAttention
    group: ProcessGroup
    num_rows: int

    def forward(self, query: Tensor, key: Tensor, value: Tensor, kernel: Kernel, scale: float) -> tuple[Tensor, Tensor]:
        """See `StagedAttention.forward`."""
        queries, keys, values = self._by_heads(query, key, value)
        out, lse = self.whole.forward(queries, keys, values, kernel, scale)
        return self._to_rows(out, 0.0), self._to_rows(lse, -torch.inf)

    def backward(
        self, grad_out: Tensor, done: ForwardPass, kernel: Kernel, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `StagedAttention.backward`."""
        query, key, value, out, lse = done
        heads = self._by_heads(query, key, value)
        grad_out, out, lse = (self._to_heads(tensor, self._query_heads(query)) for tensor in (grad_out, out, lse))
        grads = self.whole.backward(grad_out, ForwardPass(*heads, out, lse), kernel, scale)
        key_heads = self._key_heads(query, key)
        return (
            self._to_rows(grads[0], 0.0),
            self._summed(grads[1], key_heads, key),
            self._summed(grads[2], key_heads, value),
        )

    def _by_heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        key_heads = self._key_heads(query, key)
        return (
            self._to_heads(query, self._query_heads(query)),
            self._to_heads(key, key_heads),
            self._to_heads(value, key_heads),
        )

    def _query_heads(self, query: Tensor) -> list[int]:
        return list(range(query.shape[1]))

    def _key_heads(self, query: Tensor, key: Tensor) -> list[int]:
        """The key heads to send, rank by rank: [P * k]."""
        ranks = dist.get_world_size(self.group)
        return [head for rank in range(ranks) for head in key_heads_of(rank, ranks, query.shape[1], key.shape[1])]

    def _to_heads(self, rows: Tensor, heads: list[int]) -> Tensor:
        """Own rows of all heads to this rank's heads of all rows: [Tl, H, ...] -> [num_rows, len(heads) / P, ...]"""
        chosen = rows if heads == list(range(rows.shape[1])) else rows[:, heads]
        received = self._all_to_all(chosen.unflatten(1, (dist.get_world_size(self.group), -1)).movedim(1, 0))
        return received.flatten(0, 1)[: self.num_rows]

    def _to_rows(self, heads: Tensor, padding: float) -> Tensor:
        """The other way: [num_rows, m, ...] -> [Tl, P * m, ...]"""
        return self._by_rank(heads, padding).movedim(0, 1).flatten(1, 2)

    def _by_rank(self, heads: Tensor, padding: float) -> Tensor:
        """What each rank computed for the own rows: [num_rows, m, ...] -> [P, Tl, m, ...]"""
        ranks = dist.get_world_size(self.group)
        rows_per_rank = -(-self.num_rows // ranks)
        missing = heads.new_full((ranks * rows_per_rank - self.num_rows, *heads.shape[1:]), padding)
        return self._all_to_all(torch.cat((heads, missing)).unflatten(0, (ranks, rows_per_rank)))

    def _summed(self, grads: Tensor, heads: list[int], like: Tensor) -> Tensor:
        """Gradients [num_rows, k, D] of a rank's key heads to those of the own rows' key heads: [Tl, Hkv, D].

        A head that several ranks read gets the sum of their gradients, added in rank order.
        """
        parts = self._by_rank(grads, 0.0).movedim(0, 1).flatten(1, 2)  # [Tl, P * k, D]
        total = like.new_zeros(like.shape, dtype=accumulation_dtype(like.dtype))
        for number, head in enumerate(heads):
            total[:, head] += parts[:, number]
        return total.to(like.dtype)

    def _all_to_all(self, parts: Tensor) -> Tensor:
        """Part i of [P, ...] to rank i; what came from rank i as part i."""
        sent = parts.contiguous()
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.group)
        return received
