from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchorcontext import ContextPlan, CostModel, WindowLayout, plan_context
from anchorcontext.context_parallel import POLICIES, take_rows
from tests.context_parallel.cases import layouts


def rows_of(plan: ContextPlan, rank: int) -> list[int]:
    return [row for row in plan.row_order(rank).tolist() if row >= 0]


def buffer_of(plan: ContextPlan, rank: int) -> list[int]:
    """Window rows of a rank's key buffer, received rows taken from what the senders say they send."""
    stage = plan.stages(rank)[0]
    buffer = plan.row_order(rank).tolist()
    for sender in range(plan.ranks):
        theirs = plan.stages(sender)[0]
        first = sum(theirs.send_counts[:rank])
        sent = theirs.send_rows[first : first + theirs.send_counts[rank]]
        assert len(sent) == stage.receive_counts[sender]
        buffer += plan.row_order(sender)[torch.from_numpy(sent)].tolist()
    return buffer


def check_every_row_is_held_once(plan: ContextPlan, layout: WindowLayout) -> None:
    ranks = plan.ranks
    orders = [plan.row_order(rank) for rank in range(ranks)]
    assert {len(order) for order in orders} == {-(-layout.num_rows // ranks)}
    assert {order.dtype for order in orders} == {torch.int64}
    held = torch.cat(orders)
    assert int((held == -1).sum()) < ranks
    assert held[held >= 0].sort().values.tolist() == list(range(layout.num_rows))
    for order in orders:  # by window row, padding last
        used = int((order >= 0).sum())
        assert order[:used].tolist() == sorted(order[:used].tolist())
        assert bool((order[used:] == -1).all())


def check_exactly_the_needed_rows_are_moved(plan: ContextPlan, layout: WindowLayout) -> None:
    ranks = plan.ranks
    mask = layout.dense_mask()
    for rank in range(ranks):
        held = rows_of(plan, rank)
        needed = set(torch.nonzero(mask[held].any(dim=0)).flatten().tolist()) - set(held)
        received = buffer_of(plan, rank)[plan.rows_per_rank :]
        assert len(received) == len(set(received)) == plan.rows_received(rank)
        assert set(received) == needed
        assert plan.stages(rank)[0].exchanges == any(plan.rows_received(other) for other in range(ranks))


def check_segments_are_the_mask(plan: ContextPlan, layout: WindowLayout) -> None:
    ranks = plan.ranks
    mask = layout.dense_mask()
    for rank in range(ranks):
        stage, order = plan.stages(rank)[0], plan.row_order(rank).tolist()
        keys = np.array(buffer_of(plan, rank))
        if stage.key_rows is not None:
            assert len(set(stage.key_rows.tolist())) == len(stage.key_rows)
            keys = keys[stage.key_rows]
        seen = {row: [] for row in order if row >= 0}
        for run, key_run in stage.segments.runs:
            earlier = (key_run.stop - key_run.start) - (run.stop - run.start)
            for number, row in enumerate(order[run]):
                assert not seen[row]
                seen[row] = keys[key_run][: earlier + number + 1].tolist()
        for row, row_keys in seen.items():
            assert row_keys == torch.nonzero(mask[row]).flatten().tolist()


def check_send_matrix_is_the_transposed_receive_matrix(plan: ContextPlan, layout: WindowLayout) -> None:
    ranks = plan.ranks
    sent = np.array([plan.stages(rank)[0].send_counts for rank in range(ranks)])
    received = np.array([plan.stages(rank)[0].receive_counts for rank in range(ranks)])
    assert np.array_equal(sent, received.T)
    assert not sent.diagonal().any()
    assert received.sum(axis=1).tolist() == [plan.rows_received(rank) for rank in range(ranks)]


def check_work_is_the_pairs_of_the_mask(plan: ContextPlan, layout: WindowLayout) -> None:
    ranks = plan.ranks
    mask = layout.dense_mask()
    assert [plan.work(rank) for rank in range(ranks)] == [int(mask[rows_of(plan, rank)].sum()) for rank in range(ranks)]


def check_zigzag_shares_rows_equally(plan: ContextPlan, layout: WindowLayout) -> None:
    totals = [len(rows_of(plan, rank)) for rank in range(plan.ranks)]
    assert max(totals) - min(totals) <= 1


def check_contiguous_is_the_window_in_order(plan: ContextPlan, layout: WindowLayout) -> None:
    held = torch.cat([plan.row_order(rank) for rank in range(plan.ranks)])
    assert held[: layout.num_rows].tolist() == list(range(layout.num_rows))


def check_one_rank_holds_the_window_as_it_is(plan: ContextPlan, layout: WindowLayout) -> None:
    assert plan.row_order(0).tolist() == list(range(layout.num_rows))
    assert plan.rows_received(0) == 0
    assert not plan.stages(0)[0].exchanges


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(layouts(), st.integers(1, 9))
def test_properties_of_every_plan(layout: WindowLayout, ranks: int) -> None:
    for policy in POLICIES:
        plan = plan_context(layout, ranks, policy=policy)
        check_every_row_is_held_once(plan, layout)
        check_exactly_the_needed_rows_are_moved(plan, layout)
        check_segments_are_the_mask(plan, layout)
        check_send_matrix_is_the_transposed_receive_matrix(plan, layout)
        check_work_is_the_pairs_of_the_mask(plan, layout)
        if policy == "zigzag":
            check_zigzag_shares_rows_equally(plan, layout)
        if policy == "contiguous":
            check_contiguous_is_the_window_in_order(plan, layout)
        if ranks == 1:
            check_one_rank_holds_the_window_as_it_is(plan, layout)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_zigzag_shares_work_equally(ranks: int) -> None:
    for lengths in ([4099], [1009, 2003, 700], [257] * 12):
        plan = plan_context(WindowLayout(lengths), ranks, policy="zigzag")
        work = [plan.work(rank) for rank in range(ranks)]
        assert max(work) / (sum(work) / ranks) < 1.03


def test_zigzag_of_one_document_moves_the_least_there_is() -> None:
    """Three quarters of an all-gather: rank r lacks the rows before its later chunk that it does not hold."""
    plan = plan_context(WindowLayout([6400]), 8, policy="zigzag")
    received = sum(plan.rows_received(rank) for rank in range(8))
    assert received == pytest.approx(0.75 * 6400 * 7, rel=0.01)


def test_documents_on_one_rank_move_nothing() -> None:
    plan = plan_context(WindowLayout([50, 50, 100, 30, 70]), 3, policy="contiguous")
    assert [plan.rows_received(rank) for rank in range(3)] == [0, 0, 0]
    assert not plan.stages(1)[0].exchanges
    assert plan.stages(1)[0].key_rows is None


def test_more_ranks_than_rows() -> None:
    for policy in POLICIES:
        plan = plan_context(WindowLayout([2, 1]), 7, policy=policy)
        assert sorted(len(rows_of(plan, rank)) for rank in range(7)) == [0, 0, 0, 0, 1, 1, 1]


def test_auto_takes_the_cheapest_by_its_cost_model() -> None:
    """Within the 1% that the model cannot tell; there, the fewest rows."""
    layout = WindowLayout([600, 100, 300])
    plans = {policy: plan_context(layout, 4, policy=policy) for policy in POLICIES}
    slow_network, slow_compute = CostModel(bytes_per_second=1.0), CostModel(flops_per_second=1.0)
    assert plan_context(layout, 4, costs=slow_network).policy == "contiguous"
    for costs in (slow_network, slow_compute, CostModel()):
        seconds = {policy: plan.seconds(costs) for policy, plan in plans.items()}
        chosen = plan_context(layout, 4, costs=costs)
        assert seconds[chosen.policy] <= 1.01 * min(seconds.values())
        for policy, plan in plans.items():
            if seconds[policy] <= 1.001 * min(seconds.values()):
                assert plan.rows_received_by_rank.sum() >= chosen.rows_received_by_rank.sum()


def test_cost_model_by_hand() -> None:
    """Llama-3-8B's heads, two ranks: 7 matrix products of 2 flops, and three trips of keys and values."""
    costs = CostModel(
        query_heads=32, key_heads=8, head_dim=128, flops_per_second=1e12, bytes_per_second=1e9, head_groups=1
    )
    seconds = costs.gather_seconds(np.array([10**6, 2 * 10**6]), np.array([1000, 0]))
    assert seconds.tolist() == pytest.approx(
        [7 * 2 * 32 * 128 * 1e-6 + 3 * 2 * 8 * 128 * 2 * 1000 / 1e9, 2 * 7 * 2 * 4096e-6]
    )


def test_digest_and_equality() -> None:
    layout = WindowLayout([30, 50, 20])
    plan = plan_context(layout, 4, policy="zigzag")
    assert plan == plan_context(WindowLayout([30, 50, 20]), 4, policy="zigzag")
    assert hash(plan) == hash(pickle.loads(pickle.dumps(plan)))
    others = [
        plan_context(layout, 2, policy="zigzag"),
        plan_context(layout, 4, policy="contiguous"),
        plan_context(WindowLayout([30, 49, 21]), 4, policy="zigzag"),
        plan_context(WindowLayout([30, 50, 20], arm="document"), 4, policy="zigzag"),
    ]
    assert len({plan.digest, *(other.digest for other in others)}) == 5
    assert all(plan != other for other in others)


def test_take_rows() -> None:
    order = torch.tensor([2, 0, -1])
    assert take_rows(torch.tensor([5, 6, 7]), order, -100).tolist() == [7, 5, -100]
    assert take_rows(torch.tensor([[1.0, 2], [3, 4], [5, 6]]), order, 0).tolist() == [[5, 6], [1, 2], [0, 0]]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"ranks": 0}, "ranks=0"),
        ({"exchange": "torus"}, "exchange='torus' is not available; choose gather, ring, ulysses"),
        ({"policy": "stripes"}, "policy='stripes' is not available; choose auto, contiguous, chunks, hybrid, zigzag"),
    ],
)
def test_refusals(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        plan_context(WindowLayout([4]), **{"ranks": 2, **arguments})


def test_rank_outside_the_plan() -> None:
    plan = plan_context(WindowLayout([4]), 2)
    for method in (plan.row_order, plan.rows_received, plan.work, plan.stages):
        with pytest.raises(ValueError, match="rank 2 is not one of the plan's 2 ranks"):
            method(2)
