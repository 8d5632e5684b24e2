"""BF16 matrix products on CPUs without BF16 units.

There ATen's BF16 products take 3 to 30 times as long as float32 ones (on one core of an AVX2 machine,
2,048 rows of a 128 x 344 layer: forward 32 ms against 3, gradient of the rows 77 against 3). So the
factors are widened to float32, multiplied, and the result is rounded once, which is what a BF16
product with float32 accumulation returns. Everywhere else these are the ordinary products.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right`, in their dtype."""
    if _widens(left):
        return (left.float() @ right.float()).to(left.dtype)
    return left @ right


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`rows @ weight.T + bias`, in their dtype; [..., in] -> [..., out]."""
    if _widens(rows):
        return F.linear(rows.float(), weight.float(), None if bias is None else bias.float()).to(rows.dtype)
    return F.linear(rows, weight, bias)


def use_fast_linears(model: PreTrainedModel) -> None:
    """Let the linear layers of a BF16 model on such a CPU multiply as `linear` does; elsewhere, nothing.

    Parameters and their names stay. The output projection stays as it is: `models.loss` computes it.
    """
    if not _widens(next(model.parameters())):
        return
    head = model.get_output_embeddings()
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear and module is not head:
            model.set_submodule(name, _FastLinear(module))


class _FastLinear(nn.Linear):
    """A linear layer with another one's parameters."""

    def __init__(self, original: nn.Linear) -> None:
        super().__init__(original.in_features, original.out_features, original.bias is not None, device="meta")
        self.weight, self.bias = original.weight, original.bias

    def forward(self, rows: Tensor) -> Tensor:
        return _Linear.apply(rows, self.weight, self.bias)


class _Linear(torch.autograd.Function):
    """`linear`, saving its input for the backward pass, not the float32 copy."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return linear(rows, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        need_rows, need_weight, need_bias = ctx.needs_input_grad
        flat = grad.reshape(-1, grad.shape[-1])  # [..., out] -> [T, out]
        grad_rows = matmul(grad, weight) if need_rows else None
        grad_weight = matmul(flat.T, rows.reshape(-1, rows.shape[-1])) if need_weight else None
        grad_bias = flat.sum(0, dtype=torch.float32).to(grad.dtype) if need_bias else None
        return grad_rows, grad_weight, grad_bias


def _widens(tensor: Tensor) -> bool:
    return tensor.dtype == torch.bfloat16 and tensor.device.type == "cpu" and not _cpu_multiplies_bf16()


@cache
def _cpu_multiplies_bf16() -> bool:
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)  # the check ATen itself makes
    return supported is None or bool(supported())
