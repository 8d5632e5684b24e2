from __future__ import annotations

import pickle

import pytest
import torch
import torch.distributed as dist

from anchorcontext import WindowLayout, plan_context
from tests.workers import run_on

LAYOUT = WindowLayout([5, 9])


def test_one_rank_needs_no_group() -> None:
    context = plan_context(LAYOUT, 1).bind()
    assert (context.rank, context.kernel) == (0, "auto")
    assert context.rows.tolist() == list(range(14))
    context.check_agreement()


def test_a_plan_for_ranks_needs_their_group() -> None:
    with pytest.raises(ValueError, match="a plan for 2 ranks cannot be bound to no process group"):
        plan_context(LAYOUT, 2).bind()


def test_unknown_kernel() -> None:
    with pytest.raises(ValueError, match="kernel='fast' is not available"):
        plan_context(LAYOUT, 1).bind(kernel="fast")


def test_context_of_one_rank_crosses_to_a_loader_worker() -> None:
    context = plan_context(LAYOUT, 1).bind(kernel="cpu")
    context.attention_on(torch.device("cpu"))
    copy = pickle.loads(pickle.dumps(context))
    assert (copy.plan, copy.kernel) == (context.plan, "cpu")


def _bound() -> tuple[int, list[int], str, str]:
    group = dist.group.WORLD
    context = plan_context(LAYOUT, 2, policy="contiguous").bind(group)
    with pytest.raises(ValueError, match="a plan for 3 ranks cannot be bound to a process group of 2 ranks"):
        plan_context(LAYOUT, 3).bind(group)
    with pytest.raises(TypeError, match="cannot be pickled") as pickled:
        pickle.dumps(context)
    context.check_agreement()
    other = WindowLayout([5 + context.rank, 9 - context.rank])
    with pytest.raises(RuntimeError) as unlike:
        plan_context(other, 2).bind(group).check_agreement()
    with pytest.raises(RuntimeError, match="hold a different head_groups than rank 0"):
        plan_context(LAYOUT, 2).bind(group, head_groups=1 + context.rank).check_agreement()
    return context.rank, context.rows.tolist(), str(pickled.value), str(unlike.value)


def test_bound_to_a_group() -> None:
    results = run_on(2, _bound)
    assert [result[:2] for result in results] == [(0, list(range(7))), (1, list(range(7, 14)))]
    for result in results:
        assert "num_workers=0" in result[2]
        assert result[3].startswith("ranks [1] of the context-parallel group hold a different plan than rank 0")
