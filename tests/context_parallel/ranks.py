"""Attention of random rows on the ranks of a test world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from anchorcontext import AttentionContext, WindowLayout, packed_attention, plan_context
from anchorcontext.context_parallel import take_rows
from tests.context_parallel.cases import dense_gradients
from tests.workers import run_on


def on_ranks(ranks: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    return [function(*args)] if ranks == 1 else run_on(ranks, function, *args)


def world() -> tuple[int, Any]:
    """Ranks of this world and their group."""
    return (dist.get_world_size(), dist.group.WORLD) if dist.is_initialized() else (1, None)


def bind(
    layout: WindowLayout,
    policy: str = "auto",
    kernel: str = "auto",
    *,
    exchange: str = "gather",
    head_groups: int | None = None,
) -> AttentionContext:
    """The layout planned for, and bound to, all ranks of this world."""
    ranks, group = world()
    plan = plan_context(layout, ranks, exchange=exchange, policy=policy)
    return plan.bind(group, kernel=kernel, head_groups=head_groups)


def attend(rows: list[Tensor], context: AttentionContext) -> list[Tensor]:
    """Output, logsumexp and gradients of this rank's rows, from the window's rows."""
    query, key, value, grad = (take_rows(tensor, context.rows, 0) for tensor in rows)
    inputs = [tensor.requires_grad_() for tensor in (query, key, value)]
    out, lse = packed_attention(*inputs, context, return_lse=True)
    return [out.detach(), lse, *torch.autograd.grad((out * grad).sum(), inputs)]


def largest_error(results: list[Tensor], expected: list[Tensor], context: AttentionContext) -> float:
    """Over rows this rank holds; padding rows must be exactly 0 (logsumexp: -inf)."""
    held = context.rows >= 0
    worst = 0.0
    for number, (result, reference) in enumerate(zip(results, expected, strict=True)):
        assert result.shape[0] == len(context.rows)
        assert bool((result[~held] == (-torch.inf if number == 1 else 0)).all())
        reference = reference[context.rows[held]]
        assert torch.equal(result[held] == -torch.inf, reference == -torch.inf)
        worst = max([worst, *(result[held] - reference).nan_to_num(0.0).abs().flatten().tolist()])
    return worst


def squared_errors(rows: list[Tensor], layout: WindowLayout, context: AttentionContext) -> list[tuple[float, int]]:
    """Sum of squared errors against float64, and count, of output and gradients on this rank."""
    expected = dense_gradients(rows, layout.dense_mask())
    results = attend(rows, context)
    held = context.rows >= 0
    pairs = [(results[i][held].double(), expected[i][context.rows[held]]) for i in (0, 2, 3, 4)]
    return [(float((result - reference).square().sum()), result.numel()) for result, reference in pairs]


def root_mean_squares(by_rank: list[list[tuple[float, int]]]) -> list[float]:
    """Of all ranks' rows, from what `squared_errors` returned on each."""
    sums = [[sum(part) for part in zip(*of_ranks, strict=True)] for of_ranks in zip(*by_rank, strict=True)]
    return [(squares / count) ** 0.5 for squares, count in sums]
