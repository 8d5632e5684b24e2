"""Attention kernels: queries, keys, values and segments in, output and logsumexp out; and back."""

from anchorcontext.attention.kernel import ForwardPass, Kernel
from anchorcontext.attention.kernels import KERNELS, check_kernel_name, choose_kernel
from anchorcontext.attention.partials import accumulation_dtype, merge_partials
from anchorcontext.attention.segments import Segments, single_segment
from anchorcontext.attention.self_test import KernelMismatchError, run_self_test
from anchorcontext.attention.transfer import to_device

__all__ = [
    "KERNELS",
    "ForwardPass",
    "Kernel",
    "KernelMismatchError",
    "Segments",
    "accumulation_dtype",
    "check_kernel_name",
    "choose_kernel",
    "merge_partials",
    "run_self_test",
    "single_segment",
    "to_device",
]
