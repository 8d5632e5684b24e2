"""ATen's flash attention for CPUs, forward and backward, one call a part.

ATen aligns causal masks top-left. A segment with earlier keys is therefore two parts, one over the
earlier keys (not causal) and one over the queries' own rows (causal), merged by logsumexp; padding
the queries instead would compute the whole square. Its backward accepts the merged logsumexp, so
the backward is the same two parts, summed.

Computes in float32 (float64 for float64) whatever the inputs' dtype: on CPUs without BF16 units
ATen's BF16 backward takes 4-10 times the float32 one's time, and float32 is never less precise.

Shapes: heads first inside, [1, H, rows, D], as ATen wants them; rows first, [rows, H, D], outside.
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
        query, key, value = (_heads_first(tensor, dtype) for tensor in (query, key, value))
        causal_parts, full_parts = segments.parts
        out, lse = _forward_parts(query, key, value, causal_parts, True, scale)
        if full_parts:
            out, lse = merge_partials(out, lse, *_forward_parts(query, key, value, full_parts, False, scale))
        return _rows_first(out), _rows_first(lse)

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
        tensors = [_heads_first(tensor, dtype) for tensor in (grad_out, query, key, value, out)]
        grad_out, query, key, value, out = tensors
        lse = lse.to(dtype).transpose(0, 1)[None]
        grads = [tensor.new_zeros(tensor.shape) for tensor in (query, key, value)]
        for parts, causal in zip(segments.parts, (True, False), strict=True):
            for first_row, num_rows, first_key, num_keys in parts:
                rows = [tensor.narrow(2, first_row, num_rows) for tensor in (grad_out, query, out, lse)]
                keys = [tensor.narrow(2, first_key, num_keys) for tensor in (key, value)]
                part_grads = _flash_backward(rows[0], rows[1], *keys, rows[2], rows[3], 0.0, causal, scale=scale)
                grads[0].narrow(2, first_row, num_rows).add_(part_grads[0])
                grads[1].narrow(2, first_key, num_keys).add_(part_grads[1])
                grads[2].narrow(2, first_key, num_keys).add_(part_grads[2])
        grad_query, grad_key, grad_value = map(_rows_first, grads)
        return grad_query, grad_key, grad_value


def _forward_parts(
    query: Tensor, key: Tensor, value: Tensor, parts: list[tuple[int, int, int, int]], causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Output [1, H, rows, D] and logsumexp [1, H, rows] of `parts`; 0 and -inf elsewhere."""
    out = query.new_zeros(query.shape)
    lse = query.new_full(query.shape[:3], -torch.inf)
    for first_row, num_rows, first_key, num_keys in parts:
        part_out, part_lse = _flash(
            query.narrow(2, first_row, num_rows),
            key.narrow(2, first_key, num_keys),
            value.narrow(2, first_key, num_keys),
            0.0,
            causal,
            scale=scale,
        )
        out.narrow(2, first_row, num_rows).copy_(part_out)
        lse.narrow(2, first_row, num_rows).copy_(part_lse)
    return out, lse


def _heads_first(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """[rows, H, D] -> [1, H, rows, D], a view where it can be: ATen reads wrong rows where D is strided."""
    rows = rows.to(dtype)
    return (rows if rows.stride(-1) == 1 else rows.contiguous()).transpose(0, 1)[None]


def _rows_first(heads: Tensor) -> Tensor:
    """[1, H, rows, ...] -> [rows, H, ...]"""
    return heads[0].transpose(0, 1)
