"""The available kernels, and how one is chosen."""

from __future__ import annotations

from collections.abc import Callable

import torch

from anchorcontext.attention.kernel import Kernel
from anchorcontext.attention.kernel_cpu import CpuKernel
from anchorcontext.attention.kernel_flash import FlashKernel
from anchorcontext.attention.kernel_flex import FlexKernel
from anchorcontext.attention.kernel_math import MathKernel

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        MathKernel(),
        CpuKernel(),
        FlashKernel("flash"),
        FlashKernel("flash3", "FA3"),
        FlashKernel("flash4", "FA4"),
        FlexKernel(),
    )
}
"""Kernels by name."""

_AUTO: dict[str, Callable[[torch.dtype], str]] = {
    "cpu": lambda dtype: "cpu",
    "cuda": lambda dtype: {torch.float32: "flex", torch.float64: "math"}.get(dtype, "flash"),
}
"""What `auto` chooses on each type of device: flash attention computes in two-byte dtypes only."""


def check_kernel_name(name: str) -> None:
    """Refuse a kernel that does not exist.

    Raises:
        ValueError: naming those that do.
    """
    if name != "auto" and name not in KERNELS:
        raise ValueError(f"kernel={name!r} is not available; choose auto, {', '.join(KERNELS)}")


def choose_kernel(name: str, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> Kernel:
    """The kernel called `name`, or for `auto` the fastest of the device for `dtype`.

    Raises:
        ValueError: no such kernel, or none for this device.
    """
    check_kernel_name(name)
    if name == "auto":
        if device.type not in _AUTO:
            raise ValueError(
                f"kernel='auto' has no kernel for device {device.type!r} (only for {', '.join(_AUTO)}); "
                "kernel='math' runs on any device, in float64 and slowly"
            )
        name = _AUTO[device.type](dtype)
    reason = KERNELS[name].refusal(device)
    if reason is not None:
        raise ValueError(
            f"kernel={name!r} cannot run on device {device.type!r}: {reason}; kernel='math' runs on any device"
        )
    return KERNELS[name]
