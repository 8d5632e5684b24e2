"""Step efficiency: the rank with most decides how long a step takes."""

from __future__ import annotations

import numpy as np
import pytest

from anchorcontext.data.balance import StepShape, efficiencies, step_efficiency, window_costs


def test_the_rank_with_most_decides() -> None:
    costs = np.array([1.0, 3.0, 2.0, 2.0])
    assert step_efficiency(costs, np.array([0, 1, 2, 3]), StepShape(2, 2, 0)) == pytest.approx(4 / 5)
    assert step_efficiency(costs, np.array([0, 2, 1, 3]), StepShape(2, 2, 0)) == pytest.approx(4 / 5)
    assert step_efficiency(costs, np.array([2, 3, 0, 1]), StepShape(2, 1, 0)) == 1.0
    assert step_efficiency(costs, np.array([0, 1, 2, 3]), StepShape(4, 2, 0)) == 1.0  # neighbours: 1+3 and 2+2


def test_rows_cost_beside_attention() -> None:
    assert window_costs(np.array([6, 0]), 10, 5).tolist() == [53, 50]


def test_longer_blocks_balance_better() -> None:
    work = np.random.default_rng(0).integers(0, 10**6, 4096)
    found = efficiencies("hash", work, 100, StepShape(8, 8, 0), (0, 4, 16, 64))
    assert list(found) == [0, 4, 16, 64]
    assert sorted(found.values()) == list(found.values())
    assert found[0] < 0.62  # mean over maximum of 8 uniform draws: 9/16
    assert found[64] > 0.97


def test_too_few_windows_for_a_step() -> None:
    assert efficiencies("hash", np.ones(7, dtype=np.int64), 100, StepShape(8, 8, 0)) == {}
    assert efficiencies("hash", np.ones(9, dtype=np.int64), 100, StepShape(8, 2, 0))[16] == 1.0
