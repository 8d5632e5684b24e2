"""Partial results of one softmax: how they are held and joined.

Shapes: T rows, H query heads, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that sums of `dtype` are kept in: float64 for itself, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def merge_partials(out: Tensor, lse: Tensor, other_out: Tensor, other_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Join attention over two disjoint sets of keys, exactly.

    With o = sum_j softmax weights * v_j and lse = log sum_j exp(score_j) of each set:
    lse = log(exp(lse_a) + exp(lse_b)), out = exp(lse_a - lse) * o_a + exp(lse_b - lse) * o_b.

    Args:
        out, other_out: [T, H, D] in an accumulation dtype; 0 where a row has no keys.
        lse, other_lse: [T, H]; -inf where a row has no keys.
    """
    merged_lse = torch.logaddexp(lse, other_lse)
    reference = merged_lse.masked_fill(merged_lse == -torch.inf, 0.0)  # -inf - -inf would be NaN
    weight = torch.exp(lse - reference)[..., None]
    other_weight = torch.exp(other_lse - reference)[..., None]
    return out * weight + other_out * other_weight, merged_lse
