"""Runs a plan's stages through a kernel, forward and backward.

Partial results of several stages are merged by logsumexp in the accumulation dtype and rounded
once. The backward repeats the exchange rather than keep what it brought.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from anchorcontext.attention import Kernel, accumulation_dtype, merge_partials
from anchorcontext.context_parallel.exchange import gather_keys, return_gradients

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from anchorcontext.context_parallel.context import DeviceStage


def run_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    stages: Sequence[DeviceStage],
    group: ProcessGroup | None,
    kernel: Kernel,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Output [Tl, Hq, D] in the dtype of `query`, and logsumexp [Tl, Hq] in its accumulation dtype."""
    result: tuple[Tensor, Tensor] | None = None
    for stage in stages:
        keys, values = gather_keys(key, value, stage, group)
        partial = kernel.forward(query, keys, values, stage.segments, scale)
        result = partial if result is None else merge_partials(*result, *partial)
    assert result is not None
    out, lse = result
    return out.to(query.dtype), lse.to(accumulation_dtype(query.dtype))


def run_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    stages: Sequence[DeviceStage],
    group: ProcessGroup | None,
    kernel: Kernel,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `query`, `key` and `value`, in their shapes and dtypes."""
    totals: list[Tensor] | None = None
    for stage in stages:
        keys, values = gather_keys(key, value, stage, group)
        grad_query, grad_keys, grad_values = kernel.backward(
            grad_out, query, keys, values, out, lse, stage.segments, scale
        )
        grads = [grad_query, *return_gradients(grad_keys, grad_values, len(key), key.dtype, stage, group)]
        totals = grads if totals is None else [total + grad for total, grad in zip(totals, grads, strict=True)]
    assert totals is not None
    grad_query, grad_key, grad_value = (total.to(query.dtype) for total in totals)
    return grad_query, grad_key, grad_value
