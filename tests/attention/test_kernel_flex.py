from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from anchorcontext import WindowLayout, packed_attention, plan_context
from anchorcontext.attention import KERNELS, ForwardPass, Segments, merge_partials
from anchorcontext.attention import kernel_flex as flex_module
from anchorcontext.attention.kernel_flex import KeyBlocks, block_mask, key_ranges
from tests.attention.test_kernel_flash import SEGMENTS
from tests.context_parallel.cases import layouts, random_rows

CPU = torch.device("cpu")


def mask_of(segments: Segments, num_queries: int, num_keys: int) -> np.ndarray:
    mask = np.zeros((num_queries, num_keys), dtype=bool)
    for rows, keys in segments.runs:
        count, total = rows.stop - rows.start, keys.stop - keys.start
        mask[rows, keys] = np.tri(count, total, total - count, dtype=bool) if segments.causal else True
    return mask


def check_blocks(segments: Segments, num_queries: int, num_keys: int, block: int) -> None:
    mask = mask_of(segments, num_queries, num_keys)
    first, last = key_ranges(segments, num_queries)
    keys = np.arange(num_keys)
    assert np.array_equal((keys >= first[:, None]) & (keys < last[:, None]), mask)
    blocks = KeyBlocks.of(segments, num_queries, num_keys, block)
    for query in range(blocks.full.shape[0]):
        for key in range(blocks.full.shape[1]):
            part = mask[query * block : (query + 1) * block, key * block : (key + 1) * block]
            assert not (blocks.full[query, key] and blocks.partial[query, key])
            if blocks.full[query, key]:
                assert part.all()
            elif part.any():
                assert blocks.partial[query, key]
            if part.all() and part.shape[1] == block:
                assert blocks.full[query, key]


@pytest.mark.parametrize("name", SEGMENTS)
def test_block_masks(name: str) -> None:
    for block in (4, 7, 64):
        check_blocks(SEGMENTS[name], 40, 40, block)


@settings(max_examples=40)
@given(layouts(), st.integers(1, 3), st.integers(3, 20))
def test_block_masks_of_plans(layout: WindowLayout, ranks: int, block: int) -> None:
    plan = plan_context(layout, ranks, policy="zigzag")
    for rank in range(ranks):
        stage = plan.stages(rank)[0]
        num_keys = plan.rows_per_rank + sum(stage.receive_counts) if stage.key_rows is None else len(stage.key_rows)
        check_blocks(stage.segments, plan.rows_per_rank, num_keys, block)


@pytest.mark.parametrize("name", SEGMENTS)
def test_forward_on_a_cpu(name: str) -> None:
    query, key, value, _ = (tensor.float() for tensor in random_rows(40, 4, 2, 16))
    results = KERNELS["flex"].forward(query, key, value, SEGMENTS[name], 0.3)
    expected = KERNELS["math"].forward(query, key, value, SEGMENTS[name], 0.3)
    for got, want in zip(results, expected, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


def test_masks_are_made_once() -> None:
    segments = SEGMENTS["not causal"]
    assert block_mask(segments, 40, 40, CPU) is block_mask(segments, 40, 40, CPU)


def test_no_backward_on_a_cpu() -> None:
    context = plan_context(WindowLayout([20]), 1).bind(kernel="flex")
    rows = [tensor.float() for tensor in random_rows(20, 4, 2, 16)[:3]]
    packed_attention(*rows, context)
    with pytest.raises(ValueError, match="kernel='flex' has no backward on device 'cpu': choose kernel='auto'"):
        packed_attention(*(tensor.requires_grad_() for tensor in rows), context)
    with pytest.raises(ValueError, match="has no backward on device 'cpu'"):
        KERNELS["flex"].backward(rows[0], ForwardPass(*rows, rows[0], rows[0][..., 0]), SEGMENTS["not causal"], 1.0)


def dense_flex(query: Tensor, key: Tensor, value: Tensor, mask: Any, scale: float) -> tuple[Tensor, Tensor]:
    """FlexAttention by its definition, differentiable on a CPU: [1, H, rows, D]."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    rows, keys = torch.arange(query.shape[2])[:, None], torch.arange(key.shape[2])[None]
    visible = mask.mask_mod(torch.tensor(0), torch.tensor(0), rows, keys)
    scores = (query @ key.transpose(-1, -2) * scale).masked_fill(~visible, -torch.inf)
    lse = torch.logsumexp(scores, -1)
    weights = torch.where(visible, torch.exp(scores - lse.masked_fill(lse == -torch.inf, 0.0)[..., None]), 0.0)
    return weights @ value, lse


def test_backward_of_parts_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part's gradients with the merged output and logsumexp, as the ring asks for them."""
    monkeypatch.setattr(flex_module, "_flex", dense_flex)
    monkeypatch.setattr(flex_module, "_BACKWARD_DEVICES", ("cpu",))
    query, key, value, grad = random_rows(12, 4, 2, 8)
    own = Segments(*map(np.array, ([0, 5], [5, 6], [0, 5], [5, 6])))  # the last query sees nothing
    more = Segments(*map(np.array, ([5], [6], [0], [5])), causal=False)
    parts = [KERNELS["flex"].forward(query, key, value, part, 0.3) for part in (own, more)]
    out, lse = merge_partials(*parts[0], *parts[1])
    for part in (own, more):
        saved = (grad, ForwardPass(query, key, value, out, lse), part, 0.3)
        for got, want in zip(KERNELS["flex"].backward(*saved), KERNELS["math"].backward(*saved), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
