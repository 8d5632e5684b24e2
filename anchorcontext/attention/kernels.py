"""The kernel interface, the kernels there are, and how one is chosen.

A kernel knows rows, heads and segments; nothing of documents, ranks or anchors.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from anchorcontext.attention.kernel_cpu import CpuKernel
from anchorcontext.attention.kernel_math import MathKernel
from anchorcontext.attention.segments import Segments


class Kernel(Protocol):
    """Variable-length attention with its logsumexp.

    Shapes: query [Tq, Hq, D]; key and value [Tk, Hkv, D]; Hq a multiple of Hkv, query head h reads
    key head h // (Hq / Hkv). One dtype for all three. Results are at least as wide as the
    accumulation dtype of the inputs, so that partial results can be merged before they are rounded.
    """

    name: str

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float
    ) -> tuple[Tensor, Tensor]:
        """Output [Tq, Hq, D] and natural logsumexp of the scaled scores [Tq, Hq].

        Rows of no segment: output 0, logsumexp -inf.
        """
        ...

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
        """Gradients of query, key and value, in their shapes; overlapping key runs are summed.

        `out` and `lse` are the final ones of each row, over all its keys, even where `segments`
        covers a part of them: the parts' gradients then add up to the whole.
        """
        ...


KERNELS: dict[str, Kernel] = {kernel.name: kernel for kernel in (MathKernel(), CpuKernel())}
"""Kernels by name."""

_AUTO = {"cpu": "cpu"}  # device type -> kernel


def check_kernel_name(name: str) -> None:
    """Refuse a kernel that does not exist.

    Raises:
        ValueError: naming those that do.
    """
    if name != "auto" and name not in KERNELS:
        raise ValueError(f"kernel={name!r} is not available; choose auto, {', '.join(KERNELS)}")


def choose_kernel(name: str, device: torch.device) -> Kernel:
    """The kernel called `name`, or the device's fastest for `auto`.

    Raises:
        ValueError: no such kernel, or none for this device.
    """
    check_kernel_name(name)
    if name == "auto":
        if device.type not in _AUTO:
            raise ValueError(
                f"kernel='auto' has no kernel for device {device.type!r} yet (only for "
                f"{', '.join(_AUTO)}); kernel='math' runs on any device, in float64 and slowly"
            )
        name = _AUTO[device.type]
    if name == "cpu" and device.type != "cpu":
        raise ValueError(f"kernel='cpu' cannot run on device {device.type!r}; kernel='math' runs on any device")
    return KERNELS[name]
