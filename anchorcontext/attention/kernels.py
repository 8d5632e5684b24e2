"""The kernels there are, and how one is chosen."""

from __future__ import annotations

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

_AUTO = {"cpu": "cpu", "cuda": "flash"}  # device type -> kernel


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
                f"kernel='auto' has no kernel for device {device.type!r} (only for {', '.join(_AUTO)}); "
                "kernel='math' runs on any device, in float64 and slowly"
            )
        name = _AUTO[device.type]
    reason = KERNELS[name].refusal(device)
    if reason is not None:
        raise ValueError(
            f"kernel={name!r} cannot run on device {device.type!r}: {reason}; kernel='math' runs on any device"
        )
    return KERNELS[name]
