"""ATen's flash attention for CPUs, forward and backward, one call a segment.

ATen aligns causal masks top-left. A segment with earlier keys is therefore two calls, one over the
earlier keys (not causal) and one over the queries' own rows (causal), merged by logsumexp; padding
the queries instead would compute the whole square. Its backward accepts the merged logsumexp, so
the backward is the same two calls, summed.

Computes in float32 (float64 for float64) whatever the inputs' dtype: on CPUs without BF16 units
ATen's BF16 backward takes 5-12 times the float32 one's time, and float32 is never less precise.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anchorcontext.attention.partials import accumulation_dtype, merge_partials
from anchorcontext.attention.segments import Segments

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


class CpuKernel:
    """Kernel `cpu`: CPU tensors, any float dtype; results in the accumulation dtype."""

    name = "cpu"

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See `Kernel.forward`."""
        dtype = accumulation_dtype(query.dtype)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        out = torch.zeros(query.shape, dtype=dtype)
        lse = torch.full(query.shape[:2], -torch.inf, dtype=dtype)
        for rows, keys in segments.runs:
            parts = [
                _forward_part(query[rows], key[part], value[part], causal, scale)
                for part, causal in _parts(rows, keys, segments.causal)
            ]
            out[rows], lse[rows] = parts[0] if len(parts) == 1 else merge_partials(*parts[0], *parts[1])
        return out, lse

    def backward(
        self,
        grad_out: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        out: Tensor,
        lse: Tensor,
        segments: Segments,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Kernel.backward`."""
        dtype = accumulation_dtype(query.dtype)
        grad_out, query, key, value, out = (tensor.to(dtype) for tensor in (grad_out, query, key, value, out))
        grad_query = torch.zeros(query.shape, dtype=dtype)
        grad_key, grad_value = torch.zeros(key.shape, dtype=dtype), torch.zeros(value.shape, dtype=dtype)
        for rows, keys in segments.runs:
            for part, causal in _parts(rows, keys, segments.causal):
                tensors = (grad_out[rows], query[rows], key[part], value[part], out[rows])
                grads = _flash_backward(*map(_heads_first, tensors), _heads_first(lse[rows]), 0.0, causal, scale=scale)
                grad_query[rows] += _rows_first(grads[0])
                grad_key[part] += _rows_first(grads[1])
                grad_value[part] += _rows_first(grads[2])
        return grad_query, grad_key, grad_value


def _parts(rows: slice, keys: slice, causal: bool) -> list[tuple[slice, bool]]:
    """The calls of one segment: which keys, and whether causal."""
    num_queries = rows.stop - rows.start
    own = keys.stop - num_queries  # the first key that is one of the queries' own rows
    if not causal or num_queries == 1:
        return [(keys, False)]
    if own == keys.start:
        return [(keys, True)]
    return [(slice(keys.start, own), False), (slice(own, keys.stop), True)]


def _forward_part(query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    out, lse = _flash(*map(_heads_first, (query, key, value)), 0.0, causal, scale=scale)
    return _rows_first(out), _rows_first(lse)


def _heads_first(rows: Tensor) -> Tensor:
    """[m, H, ...] -> [1, H, m, ...]"""
    return rows.transpose(0, 1)[None]


def _rows_first(heads: Tensor) -> Tensor:
    """[1, H, m, ...] -> [m, H, ...]"""
    return heads[0].transpose(0, 1)
