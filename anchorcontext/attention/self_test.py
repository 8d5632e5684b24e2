"""Start-up self-test: the chosen kernel against `math`, before it computes a single step.

Catches silent differences between versions and builds of kernels: causal
alignment, logsumexp layout and base, grouped heads, gradients of overlapping keys.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from anchorcontext.attention.kernel import ForwardPass
from anchorcontext.attention.kernels import KERNELS, choose_kernel
from anchorcontext.attention.partials import accumulation_dtype
from anchorcontext.attention.segments import Segments

_HEAD_SIZE = 16
_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}


class KernelMismatchError(RuntimeError):
    """A kernel does not compute attention."""


@cache
def run_self_test(name: str, device: torch.device, dtype: torch.dtype, head_size: int = _HEAD_SIZE) -> None:
    """Compare kernel `name` with `math` on 24 rows of 4 query and 2 key heads; once per process.

    Raises:
        KernelMismatchError: which result differs, by how much, in which versions.
    """
    kernel = choose_kernel(name, device)
    if kernel.name == "math":
        return
    segments = _case()
    query, key, value, grad_out = _tensors(device, dtype, head_size)
    scale = head_size**-0.5
    expected_out, expected_lse = KERNELS["math"].forward(query, key, value, segments, scale)
    out, lse = kernel.forward(query, key, value, segments, scale)
    saved_out, saved_lse = expected_out.to(dtype), expected_lse.to(accumulation_dtype(dtype))
    saved = (grad_out, ForwardPass(query, key, value, saved_out, saved_lse), segments, scale)
    names = ("output", "logsumexp", "gradient of query", "gradient of key", "gradient of value")
    results, expected = [out, lse], [expected_out, expected_lse]
    if kernel.has_backward(device):
        results += kernel.backward(*saved)
        expected += KERNELS["math"].backward(*saved)
    for what, result, reference in zip(names, results, expected, strict=False):
        _compare(what, result, reference, kernel.name, device, dtype)


def _case() -> Segments:
    """A document, the last rows of another, its first rows, one row alone, rows of no segment."""
    return Segments(
        query_starts=np.array([0, 7, 12, 16]),
        query_lengths=np.array([7, 5, 4, 1]),
        key_starts=np.array([0, 7, 7, 23]),
        key_lengths=np.array([7, 13, 4, 1]),
    )


def _tensors(device: torch.device, dtype: torch.dtype, head_size: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(24, heads, head_size) for heads in (4, 2, 2, 4)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype) for shape in shapes]


def _compare(what: str, result: Tensor, reference: Tensor, name: str, device: torch.device, dtype: torch.dtype) -> None:
    if result.shape != reference.shape:
        error = f"has shape {tuple(result.shape)}, not {tuple(reference.shape)}"
    else:
        result = result.double()
        same = torch.isclose(result, reference, rtol=_TOLERANCE[dtype], atol=_TOLERANCE[dtype])
        if bool(same.all()):
            return
        error = f"is off by up to {float((result - reference).nan_to_num(torch.inf).abs().max()):.2g}"
    raise KernelMismatchError(
        f"kernel {name!r} fails its self-test on {device} in {dtype} with torch {torch.__version__}: its {what} "
        f"{error}. Its results cannot be trusted; choose another kernel (kernel='math' is always right)"
    )
