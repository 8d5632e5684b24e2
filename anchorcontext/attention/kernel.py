"""The kernel interface. A kernel knows rows, heads and segments; not documents, ranks or anchors."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from anchorcontext.attention.segments import Segments


class ForwardPass(NamedTuple):
    """A forward pass as its backward needs it. Shapes as in `Kernel`.

    `out` and `lse` are the final ones of each row, over all its keys.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor
    lse: Tensor


class Kernel(Protocol):
    """Variable-length attention with its logsumexp.

    Shapes: query [Tq, Hq, D]; key and value [Tk, Hkv, D]; Hq a multiple of Hkv, query head h reads
    key head h // (Hq / Hkv). One dtype for all three. Output and gradients are in that dtype or a
    wider one, as the kernel computes them: whoever merges or sums results of several calls does so
    in the accumulation dtype. The logsumexp is at least that wide.
    """

    name: str

    def refusal(self, device: torch.device) -> str | None:
        """Why the kernel cannot run on a device; None where it can."""
        return None

    def shape_refusal(self, device: torch.device, head_size: int, dtype: torch.dtype) -> str | None:
        """Why the kernel cannot compute heads of that size and dtype on a device it runs on; None where it can."""
        return None

    def has_backward(self, device: torch.device) -> bool:
        """Whether `backward` works on a device."""
        return True

    def prepare(self, segments: Segments, device: torch.device) -> None:
        """Move to a device what `forward` and `backward` need of the segments, rather than at their first call."""
        return None

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float
    ) -> tuple[Tensor, Tensor]:
        """Output [Tq, Hq, D] and natural logsumexp of the scaled scores [Tq, Hq].

        Rows of no segment: output 0, logsumexp -inf.
        """
        ...

    def backward(
        self, grad_out: Tensor, done: ForwardPass, segments: Segments, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of query, key and value, in their shapes; overlapping key runs are summed.

        Where `segments` cover a part of the keys that `done` is over, gradients of the parts add up to the whole.
        """
        ...
