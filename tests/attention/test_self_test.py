from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from anchorcontext.attention import KERNELS, KernelMismatchError, run_self_test
from anchorcontext.attention.kernel_cpu import CpuKernel

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_kernels_pass(dtype: torch.dtype) -> None:
    for name in (name for name, kernel in KERNELS.items() if kernel.refusal(CPU) is None):
        run_self_test(name, CPU, dtype)


def _aligned_top_left(kernel: CpuKernel, query: Any, key: Any, value: Any, segments: Any, scale: float) -> Any:
    out, lse = CpuKernel.forward(kernel, query, key, value, segments, scale)
    first = torch.arange(len(query))
    for rows, keys in segments.runs:
        for row in first[rows].tolist():
            seen = slice(keys.start, keys.start + row - rows.start + 1)
            scores = torch.einsum("hd,jhd->hj", query[row].double(), key[seen].double().repeat_interleave(2, 1)) * scale
            lse[row] = scores.logsumexp(-1)
            out[row] = torch.einsum("hj,jhd->hd", scores.softmax(-1), value[seen].double().repeat_interleave(2, 1))
    return out, lse


def _logsumexp_to_base_2(kernel: CpuKernel, *arguments: Any) -> Any:
    out, lse = CpuKernel.forward(kernel, *arguments)
    return out, lse * 1.4427


def _logsumexp_heads_first(kernel: CpuKernel, *arguments: Any) -> Any:
    out, lse = CpuKernel.forward(kernel, *arguments)
    return out, lse.T


def _heads_in_turn(kernel: CpuKernel, query: Any, key: Any, value: Any, segments: Any, scale: float) -> Any:
    turned = query.unflatten(1, (2, 2)).transpose(1, 2).flatten(1, 2)
    out, lse = CpuKernel.forward(kernel, turned, key, value, segments, scale)
    return out.unflatten(1, (2, 2)).transpose(1, 2).flatten(1, 2), lse.unflatten(1, (2, 2)).transpose(1, 2).flatten(1)


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        (_aligned_top_left, "output is off by"),
        (_logsumexp_to_base_2, "logsumexp is off by"),
        (_logsumexp_heads_first, "logsumexp has shape"),
        (_heads_in_turn, "output is off by"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_wrong_forward_is_caught(
    monkeypatch: pytest.MonkeyPatch, forward: Callable[..., Any], says: str, dtype: torch.dtype
) -> None:
    _install(monkeypatch, forward=forward)
    with pytest.raises(KernelMismatchError, match=f"kernel 'broken' fails .* its {says}"):
        run_self_test("broken", CPU, dtype)


def test_wrong_backward_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(kernel: CpuKernel, *arguments: Any) -> Any:
        grads = CpuKernel.backward(kernel, *arguments)
        return grads[0], grads[1] * 0.9, grads[2]

    _install(monkeypatch, backward=stale)
    with pytest.raises(KernelMismatchError, match="gradient of key"):
        run_self_test("broken", CPU, torch.float32)


def _install(monkeypatch: pytest.MonkeyPatch, **methods: Any) -> None:
    kernel = type("Broken", (CpuKernel,), {"name": "broken", **methods})()
    monkeypatch.setitem(KERNELS, "broken", kernel)
    run_self_test.cache_clear()
