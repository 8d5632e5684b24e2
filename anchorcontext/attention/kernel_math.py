"""The oracle: attention by its definition, in float64, for tests, self-tests and small windows.

Holds every segment's score matrix, so memory is query rows x key rows x heads.
Shapes: m queries and n keys of a segment, K key heads, G query heads a key head, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anchorcontext.attention.kernel import ForwardPass, Kernel
from anchorcontext.attention.segments import Segments


class MathKernel(Kernel):
    """Kernel `math`: any device, any float dtype, float64 inside and in its results."""

    name = "math"

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See `Kernel.forward`."""
        query, key, value = query.double(), key.double(), value.double()
        out = query.new_zeros(query.shape)
        lse = query.new_full(query.shape[:2], -torch.inf)
        for rows, keys in segments.runs:
            scores = _scores(query[rows], key[keys], segments.causal, scale)  # [K, G, m, n]
            lse_of_rows = torch.logsumexp(scores, dim=-1)
            weights = torch.exp(scores - lse_of_rows[..., None])
            out[rows] = _from_groups(weights @ value[keys].transpose(0, 1)[:, None])
            lse[rows] = lse_of_rows.flatten(0, 1).T  # [K, G, m] -> [m, K * G]
        return out, lse

    def backward(
        self, grad_out: Tensor, done: ForwardPass, segments: Segments, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Kernel.backward`."""
        grad_out = grad_out.double()
        query, key, value, out, lse = (tensor.double() for tensor in done)
        delta = (grad_out * out).sum(dim=-1)  # [T, H]
        grad_query, grad_key, grad_value = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
        num_key_heads = key.shape[1]
        for rows, keys in segments.runs:
            scores = _scores(query[rows], key[keys], segments.causal, scale)
            weights = torch.exp(scores - _per_group(lse[rows], num_key_heads))
            grad_rows = _to_groups(grad_out[rows], num_key_heads)  # [K, G, m, D]
            grad_weights = grad_rows @ value[keys].transpose(0, 1)[:, None].transpose(-1, -2)
            grad_scores = weights * (grad_weights - _per_group(delta[rows], num_key_heads)) * scale
            grad_query[rows] = _from_groups(grad_scores @ key[keys].transpose(0, 1)[:, None])
            grad_key[keys] += _over_groups(grad_scores, _to_groups(query[rows], num_key_heads))
            grad_value[keys] += _over_groups(weights, grad_rows)
        return grad_query, grad_key, grad_value


def _scores(query: Tensor, key: Tensor, causal: bool, scale: float) -> Tensor:
    """Masked scores [K, G, m, n] of queries [m, K * G, D] and keys [n, K, D]."""
    scores = _to_groups(query, key.shape[1]) @ key.transpose(0, 1)[:, None].transpose(-1, -2) * scale
    if not causal:
        return scores
    num_queries, num_keys = scores.shape[-2:]
    visible = torch.ones(num_queries, num_keys, dtype=torch.bool, device=query.device).tril(num_keys - num_queries)
    return scores.masked_fill(~visible, -torch.inf)


def _to_groups(rows: Tensor, num_key_heads: int) -> Tensor:
    """[m, K * G, D] -> [K, G, m, D]"""
    return rows.unflatten(1, (num_key_heads, -1)).permute(1, 2, 0, 3)


def _from_groups(rows: Tensor) -> Tensor:
    """[K, G, m, D] -> [m, K * G, D]"""
    return rows.permute(2, 0, 1, 3).flatten(1, 2)


def _per_group(per_row: Tensor, num_key_heads: int) -> Tensor:
    """[m, K * G] -> [K, G, m, 1]"""
    return per_row.unflatten(1, (num_key_heads, -1)).permute(1, 2, 0)[..., None]


def _over_groups(scores: Tensor, rows: Tensor) -> Tensor:
    """Sum over queries and groups: [K, G, m, n], [K, G, m, D] -> [n, K, D]"""
    return torch.einsum("kgmn,kgmd->nkd", scores, rows)
