"""ATen's flash attention for CPUs, forward and backward, one call a part.

ATen aligns causal masks top-left. A segment with earlier keys is therefore two parts, one over the
earlier keys (not causal) and one over the queries' own rows (causal), merged by logsumexp; padding
the queries instead would compute the whole square. Its backward accepts the merged logsumexp, so
the backward is the same two parts, summed.

Computes in float32 (float64 for float64) whatever the inputs' dtype: on CPUs without BF16 units
ATen's BF16 backward takes 4-10 times the float32 one's time, and float32 is never less precise.

Grouped heads: a key head is a batch entry of ATen's, its query heads the heads, and the keys of all
of them one expanded view, since not every supported version takes fewer key heads than query heads.

Shapes: rows first, [rows, H, D], outside; as ATen wants them inside, [K, G, rows, D], with K key
heads of G query heads each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anchorcontext.attention.kernel import ForwardPass, Kernel
from anchorcontext.attention.partials import accumulation_dtype, merge_partials
from anchorcontext.attention.segments import Segments

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


class CpuKernel(Kernel):
    """Kernel `cpu`: CPU tensors, any float dtype; results in the accumulation dtype."""

    name = "cpu"

    def refusal(self, device: torch.device) -> str | None:
        """See `Kernel.refusal`."""
        return None if device.type == "cpu" else "it runs on CPUs only"

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See `Kernel.forward`."""
        num_key_heads = key.shape[1]
        groups = query.shape[1] // num_key_heads
        query = _to_groups(query, num_key_heads)
        key, value = _expanded(key, groups), _expanded(value, groups)
        causal_parts, full_parts = segments.parts
        out, lse = _forward_parts(query, key, value, causal_parts, True, scale)
        if full_parts:
            out, lse = merge_partials(out, lse, *_forward_parts(query, key, value, full_parts, False, scale))
        return _from_groups(out), _from_groups(lse)

    def backward(
        self, grad_out: Tensor, done: ForwardPass, segments: Segments, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Kernel.backward`."""
        key, value = done.key, done.value
        num_key_heads = key.shape[1]
        groups = done.query.shape[1] // num_key_heads
        grad_out, query, out = (_to_groups(tensor, num_key_heads) for tensor in (grad_out, done.query, done.out))
        lse = done.lse.to(query.dtype).unflatten(1, (num_key_heads, groups)).permute(1, 2, 0)
        grad_query = query.new_zeros(query.shape)
        grad_key, grad_value = (query.new_zeros(num_key_heads, len(key), key.shape[2]) for _ in range(2))
        key, value = _expanded(key, groups), _expanded(value, groups)
        for parts, causal in zip(segments.parts, (True, False), strict=True):
            for first_row, num_rows, first_key, num_keys in parts:
                rows = [tensor.narrow(2, first_row, num_rows) for tensor in (grad_out, query, out, lse)]
                keys = [tensor.narrow(2, first_key, num_keys) for tensor in (key, value)]
                grads = _flash_backward(rows[0], rows[1], *keys, rows[2], rows[3], 0.0, causal, scale=scale)
                grad_query.narrow(2, first_row, num_rows).add_(grads[0])
                grad_key.narrow(1, first_key, num_keys).add_(grads[1].sum(1))
                grad_value.narrow(1, first_key, num_keys).add_(grads[2].sum(1))
        return _from_groups(grad_query), grad_key.transpose(0, 1), grad_value.transpose(0, 1)


def _forward_parts(
    query: Tensor, key: Tensor, value: Tensor, parts: list[tuple[int, int, int, int]], causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Output [K, G, rows, D] and logsumexp [K, G, rows] of `parts`; 0 and -inf elsewhere."""
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


def _prepared(rows: Tensor) -> Tensor:
    """In the accumulation dtype, and without strides inside a head, where ATen reads wrong numbers."""
    rows = rows.to(accumulation_dtype(rows.dtype))
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _to_groups(rows: Tensor, num_key_heads: int) -> Tensor:
    """[rows, K * G, D] -> [K, G, rows, D]"""
    return _prepared(rows).unflatten(1, (num_key_heads, -1)).permute(1, 2, 0, 3)


def _from_groups(heads: Tensor) -> Tensor:
    """[K, G, rows, ...] -> [rows, K * G, ...]"""
    return heads.flatten(0, 1).transpose(0, 1)


def _expanded(rows: Tensor, groups: int) -> Tensor:
    """[rows, K, D] -> [K, G, rows, D], the same memory for every G."""
    return _prepared(rows).transpose(0, 1)[:, None].expand(-1, groups, -1, -1)
