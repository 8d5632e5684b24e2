"""What an exchange gives the attention function."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from anchorcontext.attention import ForwardPass, Kernel


class SharedAttention(Protocol):
    """How one rank takes part in the attention of a window: an exchange around a kernel.

    Shapes: Tl own rows, Hq query heads, Hkv key heads, D head size. All ranks call both methods, in
    the same order.
    """

    def forward(self, query: Tensor, key: Tensor, value: Tensor, kernel: Kernel, scale: float) -> tuple[Tensor, Tensor]:
        """Output [Tl, Hq, D] in the dtype of `query`, and logsumexp [Tl, Hq] in its accumulation dtype."""
        ...

    def backward(
        self, grad_out: Tensor, done: ForwardPass, kernel: Kernel, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of query, key and value, in their shapes and dtypes."""
        ...
