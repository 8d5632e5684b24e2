"""`packed_attention`: attention over a planned window, differentiable.

Shapes: Tl rows of this rank, Hq query heads, Hkv key heads, D head size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anchorcontext.attention import ForwardPass, Kernel, choose_kernel, run_self_test, single_segment
from anchorcontext.context_parallel.context import AttentionContext
from anchorcontext.context_parallel.device_stage import DeviceStage
from anchorcontext.context_parallel.executor import StagedAttention
from anchorcontext.context_parallel.keep import kept_or_computed
from anchorcontext.context_parallel.shared_attention import SharedAttention


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    context: AttentionContext,
    *,
    scale: float | None = None,
    return_lse: bool = False,
) -> Any:
    """Exact attention of a planned window on the rows this rank holds.

    A collective where the plan has more than one rank: all of them must call it, in the same order.
    Its backward is one too.

    Args:
        query: [Tl, Hq, D], rows in the order `context.rows`.
        key, value: [Tl, Hkv, D]; Hq a multiple of Hkv. Query and key are rounded to the dtype of
            `value` where theirs is wider (rotation in float32).
        context: the bound plan.
        scale: of the scores (default: 1 / sqrt(D)).
        return_lse: return the logsumexp of the scaled scores too; no gradient flows through it.

    Returns:
        [Tl, Hq, D] in the dtype of `value`; with `return_lse` also [Tl, Hq] in float32 (float64
        for float64). Padding rows: output 0, logsumexp -inf.

    Raises:
        ValueError: shapes that do not fit the plan or one another.
        KernelMismatchError: the kernel fails its self-test.
    """
    if not isinstance(context, AttentionContext):
        raise TypeError(f"context is a {type(context).__name__}, not an AttentionContext: bind the plan first")
    _check_shapes(query, key, value)
    rows = context.plan.rows_per_rank
    if len(query) != rows or len(key) != rows:
        raise ValueError(
            f"query has {len(query)} and key {len(key)} rows, but the plan gives this rank {rows}: "
            "take them by context.rows"
        )
    out, lse = _attend(query, key, value, context.attention_on(value.device), context.kernel, scale)
    return (out, lse) if return_lse else out


def causal_attention(query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None) -> Tensor:
    """Plain causal attention of one sequence, aligned bottom-right: query i of m sees keys [0, n - m + i].

    Args:
        query: [m, Hq, D], the last m of the n rows.
        key, value: [n, Hkv, D].
        scale: of the scores (default: 1 / sqrt(D)).

    Returns:
        [m, Hq, D].
    """
    _check_shapes(query, key, value)
    if len(key) < len(query):
        raise ValueError(f"{len(query)} queries are not the last rows of {len(key)} keys")
    stage = DeviceStage.local(single_segment(len(query), len(key)))
    return _attend(query, key, value, StagedAttention((stage,)), "auto", scale)[0]


def _attend(
    query: Tensor, key: Tensor, value: Tensor, attention: SharedAttention, kernel_name: str, scale: float | None
) -> tuple[Tensor, Tensor]:
    kernel = choose_kernel(kernel_name, value.device, value.dtype)
    run_self_test(kernel.name, value.device, value.dtype)
    differentiated = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
    if differentiated and not kernel.has_backward(value.device):
        raise ValueError(
            f"kernel={kernel.name!r} has no backward on device {value.device.type!r}: choose kernel='auto' to train"
        )
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    query, key = query.to(value.dtype), key.to(value.dtype)
    return _Attention.apply(query, key, value, attention, kernel, scale)


def _check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if not query.ndim == key.ndim == value.ndim == 3:
        raise ValueError(f"expected [rows, heads, head size] each, got {shapes}")
    if key.shape[:2] != value.shape[:2]:
        raise ValueError(f"key and value must have the same rows and heads: {shapes}")
    if not query.shape[2] == key.shape[2] == value.shape[2]:
        raise ValueError(f"heads of different sizes are not supported: {shapes}")
    if query.shape[1] % key.shape[1]:
        raise ValueError(f"query heads must be a multiple of key heads: {shapes}")


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, attention: SharedAttention, kernel: Kernel, scale: float
    ) -> tuple[Tensor, Tensor]:
        out, lse = kept_or_computed(lambda: attention.forward(query, key, value, kernel, scale))
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.attention, ctx.kernel, ctx.scale = attention, kernel, scale
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_out: Tensor, _grad_lse: Tensor) -> tuple[Any, ...]:
        grads = ctx.attention.backward(grad_out, ForwardPass(*ctx.saved_tensors), ctx.kernel, ctx.scale)
        return (*grads, None, None, None)
