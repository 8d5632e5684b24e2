"""`packed_attention` on 1, 2 and 4 ranks against attention by its definition, outputs and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from anchorcontext import WindowLayout, packed_attention, plan_context
from anchorcontext.context_parallel import POLICIES, causal_attention, take_rows
from anchorcontext.layout import ARMS
from tests.context_parallel.cases import dense_attention, dense_gradients, random_layout, random_rows
from tests.context_parallel.ranks import attend, bind, largest_error, on_ranks

HEADS = [(4, 2), (3, 1), (5, 5)]


def errors_of_random_windows(seeds: list[int]) -> list[float]:
    errors = []
    for seed in seeds:
        layout = random_layout(seed, arm=ARMS[seed % len(ARMS)])
        heads, key_heads = HEADS[seed % len(HEADS)]
        rows = random_rows(layout.num_rows, heads, key_heads, 8, seed)
        expected = dense_gradients(rows, layout.dense_mask())
        for policy in POLICIES:
            for kernel in ("math", "cpu"):
                context = bind(layout, policy, kernel)
                errors.append(largest_error(attend(rows, context), expected, context))
    return errors


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_arm_kernel_and_policy_is_attention_over_the_dense_mask(ranks: int) -> None:
    for errors in on_ranks(ranks, errors_of_random_windows, list(range(12))):
        assert max(errors) < 1e-12


EDGES = {
    "a rank with padding alone": WindowLayout([9], num_rows=40),
    "padding everywhere": WindowLayout([1], num_rows=9),
    "ranks without rows": WindowLayout([2]),
    "one-row pieces": WindowLayout([1] * 13),
    "a shard without a document start": WindowLayout([97]),
    "prime lengths": WindowLayout([31, 53, 17]),
    "interleaved": WindowLayout([7, 9, 5, 11], document_ids=[0, 1, 0, 1]),
}


def errors_of_edges() -> dict[str, float]:
    errors = {}
    for name, layout in EDGES.items():
        rows = random_rows(layout.num_rows, 4, 2, 8)
        expected = dense_gradients(rows, layout.dense_mask())
        for policy in POLICIES:
            context = bind(layout, policy)
            errors[f"{name}, {policy}"] = largest_error(attend(rows, context), expected, context)
    return errors


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_edges(ranks: int) -> None:
    for errors in on_ranks(ranks, errors_of_edges):
        assert {name: error for name, error in errors.items() if error > 1e-12} == {}


def gradients_are_right_numerically() -> bool:
    layout = WindowLayout([3, 5, 1], num_rows=10)
    context = bind(layout, "zigzag")
    inputs = [take_rows(tensor, context.rows, 0).requires_grad_() for tensor in random_rows(10, 2, 1, 4)[:3]]
    return torch.autograd.gradcheck(lambda *rows: packed_attention(*rows, context), inputs)


def test_gradcheck() -> None:
    assert gradients_are_right_numerically()


def bits(seed: int, dtype: torch.dtype) -> list[Tensor]:
    layout = WindowLayout([33, 1, 61, 20], num_rows=120)
    return attend([tensor.to(dtype) for tensor in random_rows(120, 4, 2, 8, seed)], bind(layout, "zigzag"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_same_bits_in_every_run(ranks: int, dtype: torch.dtype) -> None:
    first, second = (on_ranks(ranks, bits, 0, dtype) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
        assert all(tensor.dtype == dtype for number, tensor in enumerate(one) if number != 1)
        assert one[1].dtype == torch.float32


def rms_errors(dtype: torch.dtype, policy: str) -> list[tuple[float, int]]:
    """Sum of squared errors against float64, and count, of output and gradients on this rank."""
    rows, layout = _precision_case(dtype)
    expected = dense_gradients(rows, layout.dense_mask())
    context = bind(layout, policy)
    results = attend(rows, context)
    held = context.rows >= 0
    pairs = [(results[i][held].double(), expected[i][context.rows[held]]) for i in (0, 2, 3, 4)]
    return [(float((result - reference).square().sum()), result.numel()) for result, reference in pairs]


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
@pytest.mark.parametrize("ranks", [1, 2, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_as_precise_as_one_device_for_any_number_of_ranks(ranks: int, dtype: torch.dtype) -> None:
    allowed = [2 * error for error in single_device_errors(dtype)]
    for policy in POLICIES:
        by_rank = on_ranks(ranks, rms_errors, dtype, policy)
        for what in range(4):
            squares, counts = zip(*(errors[what] for errors in by_rank), strict=True)
            assert (sum(squares) / sum(counts)) ** 0.5 <= allowed[what]


def micro_batches_in_flight(use_reentrant: bool | None) -> float:
    """Two windows forward, then both backward, in the other order, recomputed or not; against one at a time."""
    layouts = [WindowLayout([20, 31, 9]), WindowLayout([50, 3, 30], num_rows=90)]
    contexts = [bind(layout, "zigzag") for layout in layouts]
    rows = [random_rows(layout.num_rows, 4, 2, 8, seed) for seed, layout in enumerate(layouts)]
    inputs, losses = [], []
    for window, context in zip(rows, contexts, strict=True):
        tensors = [take_rows(tensor, context.rows, 0) for tensor in window]
        inputs.append([tensor.requires_grad_() for tensor in tensors[:3]])
        if use_reentrant is None:
            out = packed_attention(*inputs[-1], context)
        else:
            out = checkpoint(packed_attention, *inputs[-1], context, use_reentrant=use_reentrant)
        losses.append((out * tensors[3]).sum())
    for loss in reversed(losses):
        loss.backward()
    expected = [attend(window, context)[2:] for window, context in zip(rows, contexts, strict=True)]
    return max(
        float((tensor.grad - reference).abs().max())
        for tensors, references in zip(inputs, expected, strict=True)
        for tensor, reference in zip(tensors, references, strict=True)
    )


@pytest.mark.parametrize("use_reentrant", [None, False, True])
@pytest.mark.parametrize("ranks", [1, 2])
def test_two_micro_batches_in_flight(ranks: int, use_reentrant: bool | None) -> None:
    assert max(on_ranks(ranks, micro_batches_in_flight, use_reentrant)) == 0.0


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
