"""Partial results of one softmax: how they are stored and merged.

Shapes: T rows, H query heads, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that sums of `dtype` are kept in: float64 for itself, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def merge_partials(out: Tensor, lse: Tensor, other_out: Tensor, other_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Merge attention over two disjoint sets of keys, exactly.

    With o = sum_j softmax weights * v_j and lse = log sum_j exp(score_j) of each set:
    lse = log(exp(lse_a) + exp(lse_b)), out = exp(lse_a - lse) * o_a + exp(lse_b - lse) * o_b.

    Args:
        out, other_out: [T, H, D] in an accumulation dtype; 0 where a row has no keys.
        lse, other_lse: [T, H]; -inf where a row has no keys.
    """
    highest = torch.maximum(lse, other_lse)
    highest = highest.masked_fill(highest == -torch.inf, 0.0)  # -inf - -inf would be NaN
    # Not logaddexp: the last few elements of a tensor take another code path in it and differ in the last bit,
    # so that results would depend on how many heads are computed together.
    share, other_share = torch.exp(lse - highest), torch.exp(other_lse - highest)
    total = share + other_share
    merged_lse = highest + torch.log(total)
    total = total.masked_fill(total == 0.0, 1.0)
    return out * (share / total)[..., None] + other_out * (other_share / total)[..., None], merged_lse
