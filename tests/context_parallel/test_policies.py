"""Every setting of every policy gives sound shares, and `auto` reaches its figures."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchorcontext import CostModel, WindowLayout, plan_context
from anchorcontext.context_parallel import EXCHANGES, POLICIES
from anchorcontext.context_parallel.policies import auto_settings
from anchorcontext.context_parallel.rows import SegmentedRows
from anchorcontext.context_parallel.sharding import Sharding
from anchorcontext.data.length_mixes import sample_window
from tests.context_parallel.cases import layouts

SETTINGS = [(name, share) for name, shares in POLICIES.items() for share in shares]


@st.composite
def long_layouts(draw: st.DrawFn) -> WindowLayout:
    """Lengths over many orders of magnitude, as corpora have them."""
    exponents = draw(st.lists(st.floats(0, 12), min_size=1, max_size=60))
    lengths = [int(math.exp(exponent)) for exponent in exponents]
    return WindowLayout(lengths, num_rows=sum(lengths) + draw(st.sampled_from([0, 0, 1, 97, 5000])))


def held_rows(sharding: Sharding) -> np.ndarray:
    """Rows of each rank, padding of the window among them."""
    return np.bincount(sharding.shares.ranks, weights=sharding.shares.lengths, minlength=sharding.ranks).astype(int)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(long_layouts(), layouts()), st.sampled_from([1, 2, 3, 5, 8, 13, 64]))
def test_rows_are_held_once_and_work_is_all_pairs(layout: WindowLayout, ranks: int) -> None:
    window = SegmentedRows.of(layout)
    lengths = np.bincount(layout.segment_ids[layout.segment_ids >= 0].numpy())
    pairs = int((lengths * (lengths + 1) // 2).sum())
    for _, share in SETTINGS:
        sharding = Sharding(window, share(window, ranks), ranks)
        shares = sharding.shares
        assert shares.starts[0] == 0
        assert shares.ends[-1] == layout.num_rows
        assert np.array_equal(shares.starts[1:], shares.ends[:-1])
        assert np.all(shares.lengths > 0)
        assert held_rows(sharding).max() <= sharding.rows_per_rank
        assert sharding.pairs.sum() == pairs
        assert np.array_equal(sharding.traffic.sum(axis=1), sharding.rows_missing)
        assert not sharding.traffic.diagonal().any()


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(long_layouts(), st.integers(2, 9), st.sampled_from(["gather", "ring", "ulysses"]), st.data())
def test_a_cap_is_kept_or_refused_with_the_least_there_is(
    layout: WindowLayout, ranks: int, exchange: str, data: st.DataObject
) -> None:
    free = plan_context(layout, ranks, exchange=exchange)
    cap = data.draw(st.integers(0, max(2 * free.rows_gathered, 1)))
    try:
        plan = plan_context(layout, ranks, exchange=exchange, max_gathered_rows=cap)
    except ValueError as error:
        least = int(str(error).split("rank hold ")[1].split()[0])
        assert least > cap
        assert plan_context(layout, ranks, exchange=exchange, max_gathered_rows=least).rows_gathered == least
    else:
        assert plan.rows_gathered <= cap


def test_ring_holds_the_rows_of_two_ranks_at_most() -> None:
    plan = plan_context(WindowLayout([900, 300]), 4, exchange="ring", policy="zigzag")
    most = 0
    for rank in range(4):
        arriving = [sum(stage.receive_counts) for stage in plan.stages(rank)[1:]] + [0]
        most = max(most, *(now + later for now, later in itertools.pairwise(arriving)))
    assert plan.rows_gathered == most
    assert plan.rows_gathered < plan_context(WindowLayout([900, 300]), 4, policy="zigzag").rows_gathered


@pytest.mark.parametrize(
    ("mix", "most_moved", "most_work", "most_time"),
    [
        ("web", 0.20, 1.05, 1.10),
        ("long", 0.45, 1.05, 1.10),
        ("8K", 0.20, 1.05, 1.10),
        ("one_document", 0.7501, 1.01, 1.10),
    ],
)
def test_figures_of_auto_at_128k_on_8_ranks(mix: str, most_moved: float, most_work: float, most_time: float) -> None:
    """Means over ten windows: rows moved of all-gather's, work of the busiest rank, modelled time of ideal."""
    costs, figures = CostModel(), []
    for seed in range(1 if mix == "one_document" else 10):
        plan = plan_context(WindowLayout(sample_window(mix, 131072, seed)), 8, costs=costs)
        assert np.array_equal(plan.rows_received_by_rank, plan.rows_missing_by_rank)
        pairs = plan.pairs_by_rank
        ideal = float(costs.compute_seconds(pairs).mean())
        moved = plan.rows_received_by_rank.sum() / (7 * 131072)
        figures.append((moved, pairs.max() / pairs.mean(), plan.seconds(costs) / ideal))
    assert np.all(np.mean(figures, axis=0) <= (most_moved, most_work, most_time))


def test_whole_documents_where_they_balance() -> None:
    """Eight like documents on eight ranks: nothing is cut, nothing moved."""
    for policy in ("chunks", "auto"):
        plan = plan_context(WindowLayout([512] * 8), 8, policy=policy)
        assert plan.rows_received_by_rank.tolist() == [0] * 8
        assert len(set(plan.pairs_by_rank.tolist())) == 1


def test_one_document_is_shared_as_zigzag_shares_it() -> None:
    zigzag = plan_context(WindowLayout([8000]), 4, policy="zigzag")
    for policy in ("chunks", "hybrid"):
        plan = plan_context(WindowLayout([8000]), 4, policy=policy)
        assert plan.rows_received_by_rank.sum() <= 1.001 * zigzag.rows_received_by_rank.sum()
        assert plan.pairs_by_rank.max() <= 1.001 * plan.pairs_by_rank.mean()


def test_a_long_document_beside_short_ones_goes_to_few_ranks() -> None:
    """Zigzag on all ranks moves each document to all of them."""
    layout = WindowLayout([4000] + [100] * 280)
    moved = {policy: plan_context(layout, 8, policy=policy).rows_received_by_rank.sum() for policy in POLICIES}
    assert moved["chunks"] < 0.25 * moved["zigzag"]
    assert moved["hybrid"] < 0.25 * moved["zigzag"]


def test_auto_cuts_no_long_window_into_crumbs() -> None:
    window = SegmentedRows.of(WindowLayout([2] * 5000))
    assert "zigzag" in [name for name, _ in auto_settings(window, 8)]
    assert "zigzag" not in [name for name, _ in auto_settings(window, 64)]


def test_plans_are_the_same_in_every_process() -> None:
    code = (
        "from anchorcontext import WindowLayout, plan_context\n"
        "from anchorcontext.data.length_mixes import sample_window\n"
        "print(*(plan_context(WindowLayout(sample_window('web', 20011, s)), 5, exchange=e).digest "
        "for s in range(3) for e in ('gather', 'ring')))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    there = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    here = [
        plan_context(WindowLayout(sample_window("web", 20011, seed)), 5, exchange=exchange).digest
        for seed in range(3)
        for exchange in ("gather", "ring")
    ]
    assert there.stdout.split() == here
    assert len(set(here)) == 6


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"exchange": "ulysses", "policy": "zigzag"}, "exchange='ulysses' needs policy='contiguous'"),
        ({"exchange": "ring_flash_attn"}, "not 101 rows by 4"),
        ({"max_gathered_rows": -1}, "max_gathered_rows=-1: a rank cannot hold fewer than 0 received rows"),
        ({"max_gathered_rows": 3}, "max_gathered_rows=3: .* received rows at one time; .*exchange='ring'"),
    ],
)
def test_refusals(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        plan_context(WindowLayout([101]), 4, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{"key_heads": 0}, {"bytes_per_second": -1.0}, {"head_groups": 9}])
def test_costs_that_make_no_sense(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"costs: {next(iter(changes))}="):
        CostModel(**changes)  # type: ignore[arg-type]


def test_overlap_by_hand() -> None:
    """Four groups: a quarter of the traffic shows, and of the rest what outlasts the computing."""
    one = CostModel(query_heads=4, key_heads=4, head_dim=1, flops_per_second=8.0, bytes_per_second=16.0, head_groups=4)
    # A pair takes 1 second a matrix product, a row 1 second a trip.
    assert one.compute_seconds(np.array([1])).tolist() == [7.0]
    assert one.traffic_seconds(np.array([1])).tolist() == [3.0]
    seconds = one.gather_seconds(np.array([10, 10]), np.array([10, 100]))
    hidden = 20 + 10 / 4 + 50 + 20 / 4
    in_sight = 20 + 100 / 4 + (100 - 20) * 3 / 4 + 50 + 200 / 4 + (200 - 50) * 3 / 4
    assert seconds.tolist() == pytest.approx([hidden, in_sight])
    assert one.ring_seconds(np.array([10, 10]), np.array([10, 100])).tolist() == [70, 300]
    assert one.serial_seconds(np.array([10]), np.array([10])).tolist() == [100]


def test_every_exchange_plans_every_rank() -> None:
    layout = WindowLayout([40, 24])
    for exchange in EXCHANGES:
        plan = plan_context(layout, 4, exchange=exchange)
        assert sum(plan.work(rank) for rank in range(4)) == 40 * 41 // 2 + 24 * 25 // 2
        assert all(plan.stages(rank) for rank in range(4))
