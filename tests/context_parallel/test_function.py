"""`packed_attention` with every kernel and policy against attention by its definition, outputs and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from anchorcontext import WindowLayout, packed_attention, plan_context
from anchorcontext.context_parallel import POLICIES, causal_attention
from tests.context_parallel.cases import dense_attention, dense_gradients, random_case, random_rows
from tests.context_parallel.ranks import attend, bind, largest_error, on_ranks, root_mean_squares, squared_errors

HEADS = [(4, 2), (3, 1), (5, 5)]


def errors_of_random_windows(seeds: list[int]) -> list[float]:
    errors = []
    for seed in seeds:
        layout, rows, expected = random_case(seed, HEADS)
        for policy in POLICIES:
            for kernel in ("math", "cpu"):
                context = bind(layout, policy, kernel)
                errors.append(largest_error(attend(rows, context), expected, context))
    return errors


@pytest.mark.parametrize("ranks", [1, 4])
def test_every_arm_kernel_and_policy_is_attention_over_the_dense_mask(ranks: int) -> None:
    for errors in on_ranks(ranks, errors_of_random_windows, list(range(8))):
        assert max(errors) < 1e-12


def errors_of_policy(dtype: torch.dtype, policy: str) -> list[tuple[float, int]]:
    rows, layout = _precision_case(dtype)
    return squared_errors(rows, layout, bind(layout, policy))


def _precision_case(dtype: torch.dtype) -> tuple[list[Tensor], WindowLayout]:
    layout = WindowLayout([300, 57, 155])
    return [tensor.to(dtype) for tensor in random_rows(layout.num_rows, 4, 2, 16)], layout


def single_device_errors(dtype: torch.dtype) -> list[float]:
    """What torch's own attention over the dense mask is off by, in the same precision."""
    rows, layout = _precision_case(dtype)
    expected = dense_gradients(rows, layout.dense_mask())
    inputs = [tensor.transpose(0, 1)[None].clone().requires_grad_() for tensor in rows[:3]]
    out = F.scaled_dot_product_attention(*inputs, attn_mask=layout.dense_mask(), enable_gqa=True)
    grads = torch.autograd.grad((out[0].transpose(0, 1) * rows[3]).sum(), inputs)
    results = [tensor.detach()[0].transpose(0, 1).double() for tensor in (out, *grads)]
    return [
        float((result - expected[i]).square().mean().sqrt()) for result, i in zip(results, (0, 2, 3, 4), strict=True)
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ranks", [1, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_as_precise_as_one_device_for_any_number_of_ranks(ranks: int, dtype: torch.dtype) -> None:
    allowed = [2 * error for error in single_device_errors(dtype)]
    for policy in POLICIES:
        errors = root_mean_squares(on_ranks(ranks, errors_of_policy, dtype, policy))
        assert all(error <= most for error, most in zip(errors, allowed, strict=True)), (policy, errors, allowed)


def test_wide_query_and_key_are_rounded_once() -> None:
    """Rotation in float32 hands over float32 queries and keys beside BF16 values."""
    context = bind(WindowLayout([12, 20]))
    query, key, value, _ = (tensor.float() for tensor in random_rows(32, 4, 2, 8))
    value = value.bfloat16()
    out = packed_attention(query, key, value, context)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, packed_attention(query.bfloat16(), key.bfloat16(), value, context))


def test_scale() -> None:
    context = bind(WindowLayout([12, 20]))
    query, key, value, _ = random_rows(32, 4, 2, 16)
    torch.testing.assert_close(
        packed_attention(query, key, value, context, scale=0.1),
        packed_attention(query * 0.1 * 16**0.5, key, value, context),
    )


def test_causal_attention_is_aligned_bottom_right() -> None:
    query, key, value, _ = random_rows(30, 4, 2, 8)
    expected, _ = dense_attention(query, key, value, torch.ones(30, 30, dtype=torch.bool).tril())
    for count in (30, 7, 1):
        torch.testing.assert_close(causal_attention(query[-count:], key, value), expected[-count:])
    with pytest.raises(ValueError, match="30 queries are not the last rows of 29 keys"):
        causal_attention(query, key[:29], value[:29])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"query": torch.zeros(1, 8, 4, 8)}, "expected \\[rows, heads, head size\\]"),
        ({"query": torch.zeros(7, 4, 8)}, "query has 7 and key 8 rows, but the plan gives this rank 8"),
        ({"key": torch.zeros(8, 1, 8)}, "key and value must have the same rows and heads"),
        ({"query": torch.zeros(8, 3, 8)}, "multiple of key heads"),
        ({"query": torch.zeros(8, 4, 6)}, "heads of different sizes"),
    ],
)
def test_shapes_that_do_not_fit(change: dict[str, Tensor], says: str) -> None:
    rows = {"query": torch.zeros(8, 4, 8), "key": torch.zeros(8, 2, 8), "value": torch.zeros(8, 2, 8), **change}
    with pytest.raises(ValueError, match=says):
        packed_attention(**rows, context=bind(WindowLayout([8])))


def test_a_plan_is_not_a_context() -> None:
    rows = random_rows(8, 4, 2, 8)[:3]
    with pytest.raises(TypeError, match="bind the plan first"):
        packed_attention(*rows, plan_context(WindowLayout([8]), 1))
