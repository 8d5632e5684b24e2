"""Every exchange on 1 to 4 ranks: the same attention, gradients and precision; and each one's own promises."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from anchorcontext import WindowLayout, packed_attention, plan_context
from anchorcontext.context_parallel import POLICIES, take_rows
from anchorcontext.context_parallel.heads import key_heads_of, rows_of_heads
from tests.context_parallel.cases import dense_gradients, layouts, random_case, random_rows
from tests.context_parallel.ranks import attend, bind, largest_error, on_ranks, root_mean_squares, squared_errors, world
from tests.workers import run_on

HEADS = [(4, 2), (3, 1), (5, 5), (28, 4), (12, 4)]
WAYS: dict[str, dict[str, Any]] = {
    "gather": {},
    "gather by head groups": {"head_groups": "all"},
    "ring": {"exchange": "ring"},
    "ring by head groups": {"exchange": "ring", "head_groups": "all"},
    "ulysses": {"exchange": "ulysses"},
}
UNGROUPED = [way for way in WAYS if not way.endswith("head groups")]
"""Enough where only the result counts: by head groups it is the same to the bit."""


def options(way: str, key_heads: int) -> dict[str, Any]:
    """`bind`'s keywords; "all" head groups: one key head each."""
    chosen = dict(WAYS[way])
    if chosen.get("head_groups") == "all":
        chosen["head_groups"] = key_heads
    return chosen


def policies(way: str) -> list[str]:
    return ["contiguous"] if way == "ulysses" else ["contiguous", "zigzag"]


def errors(seeds: list[int]) -> dict[str, float]:
    """The largest error of each way over random windows, float64."""
    worst: dict[str, float] = {}
    for seed in seeds:
        layout, rows, expected = random_case(seed, HEADS)
        heads, key_heads = (rows[number].shape[1] for number in (0, 1))
        for way in WAYS:
            if way == "ulysses" and heads % world()[0]:
                continue
            policy = "contiguous" if way == "ulysses" else list(POLICIES)[seed % len(POLICIES)]
            context = bind(layout, policy, **options(way, key_heads))
            error = largest_error(attend(rows, context), expected, context)
            worst[way] = max(error, worst.get(way, 0.0))
    return worst


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_exchange_is_attention_over_the_dense_mask(ranks: int) -> None:
    for worst in on_ranks(ranks, errors, list(range(10))):
        assert set(worst) == set(WAYS)
        assert max(worst.values()) < 1e-12, worst


EDGES = {
    "a rank with padding alone": WindowLayout([9], num_rows=40),
    "padding everywhere": WindowLayout([1], num_rows=9),
    "ranks without rows": WindowLayout([2]),
    "one-row pieces": WindowLayout([1] * 13),
    "shards without a document's start": WindowLayout([97]),
    "prime lengths": WindowLayout([31, 53, 17]),
    "interleaved": WindowLayout([7, 9, 5, 11], document_ids=[0, 1, 0, 1]),
}


def errors_of_edges() -> dict[str, float]:
    found = {}
    for name, layout in EDGES.items():
        rows = random_rows(layout.num_rows, 12, 4, 8)
        expected = dense_gradients(rows, layout.dense_mask())
        for way in WAYS:
            for policy in POLICIES if way in ("gather", "ring") else policies(way)[-1:]:
                context = bind(layout, policy, **options(way, 4))
                found[f"{name}, {way}, {policy}"] = largest_error(attend(rows, context), expected, context)
    return found


@pytest.mark.parametrize("ranks", [1, 3])
def test_edges(ranks: int) -> None:
    for found in on_ranks(ranks, errors_of_edges):
        assert {name: error for name, error in found.items() if error > 1e-12} == {}


def results(way: str, dtype: torch.dtype) -> list[Tensor]:
    layout = WindowLayout([33, 1, 61, 20], num_rows=120)
    rows = [tensor.to(dtype) for tensor in random_rows(120, 12, 4, 8)]
    return attend(rows, bind(layout, policies(way)[-1], **options(way, 4)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ranks", [1, 4])
def test_same_bits_in_every_run_and_for_any_head_groups(ranks: int, dtype: torch.dtype) -> None:
    for way in WAYS:
        first = on_ranks(ranks, results, way, dtype)
        again = on_ranks(ranks, results, way.removesuffix(" by head groups"), dtype)
        for one, other in zip(first, again, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True)), way
            assert [tensor.dtype for tensor in one] == [dtype, torch.float32, dtype, dtype, dtype]


def errors_of_way(way: str, policy: str, dtype: torch.dtype) -> list[tuple[float, int]]:
    layout = WindowLayout([300, 57, 155])
    rows = [tensor.to(dtype) for tensor in random_rows(layout.num_rows, 8, 4, 16)]
    return squared_errors(rows, layout, bind(layout, policy, **options(way, 4)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ranks", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_as_precise_as_one_rank(ranks: int, dtype: torch.dtype) -> None:
    alone = root_mean_squares([errors_of_way("gather", "contiguous", dtype)])
    for way in UNGROUPED:
        shared = root_mean_squares(run_on(ranks, errors_of_way, way, policies(way)[-1], dtype))
        assert all(error <= 1.5 * one for error, one in zip(shared, alone, strict=True)), (way, shared, alone)


class Taken(torch.autograd.Function):
    """A rank's rows of a window that every rank has whole; gradients of all ranks' rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor) -> Tensor:
        ctx.order, ctx.shape = order, rows.shape
        return take_rows(rows, order, 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        whole = grad.new_zeros(ctx.shape)
        held = ctx.order >= 0
        whole[ctx.order[held]] = grad[held]
        if dist.is_initialized():
            dist.all_reduce(whole)
        return whole, None


class Whole(torch.autograd.Function):
    """The rows of all ranks, in rank order, on every rank."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        ranks, group = world()
        parts = [torch.empty_like(rows) for _ in range(ranks)]
        if group is None:
            return rows.clone()
        dist.all_gather(parts, rows.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        ranks, group = world()
        return grad if group is None else grad.chunk(ranks)[dist.get_rank(group)]


def numeric_gradients_agree(way: str) -> bool:
    """gradcheck of the window as a whole: every rank calls the same function of the same rows."""
    context = bind(WindowLayout([2, 3], num_rows=6), policies(way)[-1], **options(way, 2))

    def whole_window(*rows: Tensor) -> Tensor:
        query, key, value = (Taken.apply(tensor, context.rows) for tensor in rows)
        return Whole.apply(packed_attention(query, key, value, context))

    return torch.autograd.gradcheck(whole_window, [tensor.requires_grad_() for tensor in random_rows(6, 4, 2, 1)[:3]])


@pytest.mark.parametrize(("ranks", "way"), [(1, "gather"), *((2, way) for way in UNGROUPED)])
def test_gradcheck(ranks: int, way: str) -> None:
    assert all(on_ranks(ranks, numeric_gradients_agree, way))


def micro_batches_in_flight(way: str, use_reentrant: bool | None) -> float:
    """Two windows forward, then both backward, in the other order, recomputed or not; against one at a time."""
    windows = [WindowLayout([20, 31, 9]), WindowLayout([50, 3, 30], num_rows=90)]
    contexts = [bind(layout, policies(way)[-1], **options(way, 4)) for layout in windows]
    rows = [random_rows(layout.num_rows, 8, 4, 8, seed) for seed, layout in enumerate(windows)]
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
def test_two_micro_batches_in_flight(use_reentrant: bool) -> None:
    for way in WAYS:
        assert max(run_on(2, micro_batches_in_flight, way, use_reentrant)) == 0.0, way


# The next rows travel while some are computed.


def events(exchange: str) -> list[str]:
    """What starts and what is computed, in order, forward and backward, on this rank."""
    from anchorcontext.attention.kernel_cpu import CpuKernel
    from anchorcontext.context_parallel import executor

    happened: list[str] = []

    def noted(name: str, function: Any) -> Any:
        return lambda *args: (happened.append(name), function(*args))[1]

    attend(random_rows(80, 4, 2, 8), bind(WindowLayout([30, 50])))  # the kernel's self-test is over
    context = bind(WindowLayout([30, 50]), "zigzag", exchange=exchange, head_groups=2 if exchange == "gather" else 1)
    add_to = executor.GradientReturn.add_to
    with (
        mock.patch.object(executor.GradientReturn, "add_to", noted("gradients add", add_to)),
        mock.patch.object(executor, "KeyTransfer", noted("keys leave", executor.KeyTransfer)),
        mock.patch.object(executor, "GradientReturn", noted("gradients leave", executor.GradientReturn)),
        mock.patch.object(CpuKernel, "forward", noted("forward", CpuKernel.forward)),
        mock.patch.object(CpuKernel, "backward", noted("backward", CpuKernel.backward)),
    ):
        attend(random_rows(80, 4, 2, 8), context)
    return happened


@pytest.mark.parametrize("exchange", ["gather", "ring"])
def test_the_next_rows_leave_before_these_are_computed(exchange: str) -> None:
    """Two steps: two head groups, or two stages."""
    for happened in run_on(2, events, exchange):
        assert happened == [
            *("keys leave", "keys leave", "forward", "forward"),
            *("keys leave", "keys leave", "backward", "gradients leave", "backward", "gradients leave"),
            *("gradients add", "gradients add"),
        ]


def test_head_groups_divide_the_key_heads() -> None:
    rows = random_rows(40, 4, 2, 8)
    with pytest.raises(ValueError, match="head_groups=3 does not divide the 2 key heads: choose 1, 2"):
        attend(rows, bind(WindowLayout([40]), head_groups=3))
    with pytest.raises(ValueError, match="head_groups=0"):
        bind(WindowLayout([40]), head_groups=0)


# Ring: stages.


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(layouts(), st.integers(1, 7))
def test_ring_stages_move_and_see_what_they_should(layout: WindowLayout, ranks: int) -> None:
    mask = layout.dense_mask()
    for policy in POLICIES:
        plan = plan_context(layout, ranks, exchange="ring", policy=policy)
        orders = [plan.row_order(rank).tolist() for rank in range(ranks)]
        sent = {  # (sender, receiver): window rows
            (rank, stage.peers[0]): [orders[rank][row] for row in stage.send_rows]
            for rank in range(ranks)
            for stage in plan.stages(rank)[1:]
        }
        for rank in range(ranks):
            seen: dict[int, list[int]] = {row: [] for row in orders[rank] if row >= 0}
            received = 0
            for number, stage in enumerate(plan.stages(rank)):
                assert (stage.exchanges, stage.segments.causal) == ((False, True) if number == 0 else (True, False))
                buffer = orders[rank] if stage.uses_own else sent.get((stage.peers[1], rank), [])
                if not stage.uses_own:
                    received += len(buffer)
                    assert stage.receive_counts[stage.peers[1]] == len(buffer) == sum(stage.receive_counts)
                keys = np.array(buffer) if stage.key_rows is None else np.array(buffer)[stage.key_rows]
                queries = np.array(orders[rank])[slice(None) if stage.query_rows is None else stage.query_rows]
                for run, key_run in stage.segments.runs:
                    first = (key_run.stop - key_run.start) - (run.stop - run.start)
                    for offset, row in enumerate(queries[run].tolist()):
                        end = first + offset + 1 if stage.segments.causal else None
                        seen[row] += keys[key_run][:end].tolist()
            assert received == plan.rows_received(rank)
            for row, row_keys in seen.items():
                assert sorted(row_keys) == torch.nonzero(mask[row]).flatten().tolist()


def test_documents_on_one_rank_need_no_ring() -> None:
    plan = plan_context(WindowLayout([50, 50, 100]), 2, exchange="ring", policy="contiguous")
    assert [len(plan.stages(rank)) for rank in range(2)] == [1, 1]


def rows_sent_point_to_point() -> int:
    """Rows this rank sends in a forward pass; no collective carries any."""
    layout = WindowLayout([40, 70, 30])
    context = bind(layout, "zigzag", exchange="ring")
    attend(random_rows(140, 4, 2, 8), context)  # connected
    query, key, value, _ = (take_rows(tensor, context.rows, 0) for tensor in random_rows(140, 4, 2, 8))
    rows = 0
    together = dist.batch_isend_irecv

    def counted(operations: list[Any]) -> Any:
        nonlocal rows
        rows += sum(len(operation.tensor) for operation in operations if operation.op is dist.isend)
        return together(operations)

    with mock.patch.object(dist, "batch_isend_irecv", counted), mock.patch.object(dist, "all_to_all_single", None):
        packed_attention(query, key, value, context)
    return rows


def test_ring_sends_only_rows_that_are_needed() -> None:
    plan = plan_context(WindowLayout([40, 70, 30]), 3, exchange="ring", policy="zigzag")
    assert sum(run_on(3, rows_sent_point_to_point)) == sum(plan.rows_received(rank) for rank in range(3))


# Ulysses: heads.


@pytest.mark.parametrize(
    ("ranks", "query_heads", "key_heads", "expected"),
    [
        (2, 4, 2, [[0], [1]]),
        (2, 28, 4, [[0, 1], [2, 3]]),
        (4, 28, 4, [[0], [1], [2], [3]]),
        (4, 8, 2, [[0], [0], [1], [1]]),  # a key head on several ranks
        (3, 3, 1, [[0], [0], [0]]),
        (7, 28, 4, [[0] * 4, [0] * 3 + [1], [1] * 4, [1] * 2 + [2] * 2, [2] * 4, [2] + [3] * 3, [3] * 4]),
    ],
)
def test_key_heads_follow_their_query_heads(
    ranks: int, query_heads: int, key_heads: int, expected: list[list[int]]
) -> None:
    assert [key_heads_of(rank, ranks, query_heads, key_heads) for rank in range(ranks)] == expected


def test_ulysses_counts_rows_of_keys_and_values() -> None:
    """32 query and 8 key heads on 8 ranks: of 7 other ranks' rows, 4 heads of queries and outputs (half a row's
    keys and values) and one key head (an eighth)."""
    assert rows_of_heads(1000, 8, 32, 8) == 7 * 1000 * (4 + 1) / 8
    plan = plan_context(WindowLayout([4000]), 8, exchange="ulysses")
    assert plan.policy == "contiguous"
    assert [plan.rows_received(rank) for rank in range(8)] == [7 * 500 * 5 // 8 + 1] * 8
    assert sum(plan.work(rank) for rank in range(8)) == 4000 * 4001 // 2


def uneven_heads() -> str:
    context = bind(WindowLayout([40]), exchange="ulysses")
    with pytest.raises(ValueError, match="cannot share 5 query heads evenly among 2 ranks") as refusal:
        attend(random_rows(40, 5, 5, 8), context)
    with pytest.raises(ValueError, match="leave head_groups out"):
        bind(WindowLayout([40]), exchange="ulysses", head_groups=2)
    return str(refusal.value)


def test_heads_that_cannot_be_shared_are_refused() -> None:
    assert "choose gather or ring" in run_on(2, uneven_heads)[0]
    with pytest.raises(ValueError, match="exchange='ulysses' needs policy='contiguous'"):
        plan_context(WindowLayout([40]), 2, exchange="ulysses", policy="zigzag")
