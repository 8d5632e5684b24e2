"""Windows of every kind, and attention by its definition over their dense mask."""

from __future__ import annotations

import random
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from anchorcontext.layout import ARMS, WindowLayout


@st.composite
def layouts(draw: st.DrawFn, max_rows_per_piece: int = 40) -> WindowLayout:
    """Pieces from one row on, interleaved chunks, anchorless chunks, padding, several windows."""
    windows = draw(st.integers(1, 2))
    arm = draw(st.sampled_from(ARMS))
    return WindowLayout.concatenate([_window(draw, arm, max_rows_per_piece) for _ in range(windows)])


def _window(draw: st.DrawFn, arm: str, max_rows_per_piece: int) -> WindowLayout:
    lengths = draw(st.lists(st.one_of(st.just(1), st.integers(1, max_rows_per_piece)), min_size=1, max_size=7))
    documents = draw(st.one_of(st.none(), st.lists(st.integers(0, 2), min_size=len(lengths), max_size=len(lengths))))
    prefixes: int | list[int] = 1
    if documents is not None and draw(st.booleans()):  # later chunks of a document without their own anchor
        prefixes = [int(document not in documents[:piece]) for piece, document in enumerate(documents)]
    padding = draw(st.sampled_from([0, 0, 1, 5, 50]))
    return WindowLayout(
        lengths, arm=arm, document_ids=documents, prefix_lengths=prefixes, num_rows=sum(lengths) + padding
    )


def random_layout(seed: int, arm: str | None = None) -> WindowLayout:
    """One of `layouts`' kind, the same on every rank."""
    rng = random.Random(seed)
    arm = arm or rng.choice(ARMS)

    def window() -> WindowLayout:
        lengths = [rng.choice([1, 2, rng.randint(1, 60)]) for _ in range(rng.randint(1, 7))]
        documents = [rng.randint(0, 2) for _ in lengths] if rng.random() < 0.3 else None
        return WindowLayout(lengths, arm=arm, document_ids=documents, num_rows=sum(lengths) + rng.choice([0, 0, 1, 40]))

    return WindowLayout.concatenate([window() for _ in range(rng.choice([1, 1, 2]))])


def random_rows(num_rows: int, heads: int, key_heads: int, head_size: int, seed: int = 0) -> list[Tensor]:
    """Query, key, value and gradient of the output, [num_rows, heads, head_size] each, float64."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(num_rows, count, head_size, generator=generator, dtype=torch.float64)
        for count in (heads, key_heads, key_heads, heads)
    ]


def dense_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Output and logsumexp by definition, differentiable; rows that see nothing: 0 and -inf."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = torch.einsum("ihd,jhd->hij", query, key) * query.shape[-1] ** -0.5
    scores = scores.masked_fill(~mask, -torch.inf)
    seeing = mask.any(dim=1)
    weights = torch.zeros_like(scores)
    weights[:, seeing] = scores[:, seeing].softmax(dim=-1)
    return torch.einsum("hij,jhd->ihd", weights, value), scores.logsumexp(dim=-1).T


def dense_gradients(rows: list[Tensor], mask: Tensor) -> list[Tensor]:
    """Output, logsumexp and the gradients of query, key and value for `random_rows`' output gradient."""
    query, key, value = (tensor.double().clone().requires_grad_() for tensor in rows[:3])
    out, lse = dense_attention(query, key, value, mask)
    grads: Any = torch.autograd.grad((out * rows[3].double()).sum(), (query, key, value))
    return [out.detach(), lse.detach(), *grads]


def random_case(seed: int, heads: list[tuple[int, int]]) -> tuple[WindowLayout, list[Tensor], list[Tensor]]:
    """A window, its rows, and what `dense_gradients` makes of them; every arm and (query, key) heads in turn."""
    layout = random_layout(seed, arm=ARMS[seed % len(ARMS)])
    rows = random_rows(layout.num_rows, *heads[seed % len(heads)], 8, seed)
    return layout, rows, dense_gradients(rows, layout.dense_mask())
