"""Learning rates against their closed forms."""

from __future__ import annotations

import math

import pytest

from anchorcontext.config.schema import OptimConfig
from anchorcontext.train.schedule import learning_rate


def rates(schedule: str, warmup_steps: int, steps: int) -> list[float]:
    optim = OptimConfig(lr=2e-5, schedule=schedule, warmup_steps=warmup_steps)
    return [learning_rate(optim, step, steps) / 2e-5 for step in range(1, steps + 1)]


def test_constant() -> None:
    assert rates("constant", 0, 3) == [1, 1, 1]
    assert rates("constant", 2, 4) == [0.5, 1, 1, 1]


def test_linear() -> None:
    assert rates("linear", 0, 4) == pytest.approx([1, 0.75, 0.5, 0.25])
    assert rates("linear", 2, 6) == pytest.approx([0.5, 1, 1, 0.75, 0.5, 0.25])


def test_cosine() -> None:
    expected = [(1 + math.cos(math.pi * done / 4)) / 2 for done in range(4)]
    assert rates("cosine", 0, 4) == pytest.approx(expected)
    assert rates("cosine", 1, 5) == pytest.approx([1, *expected])


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_zero_comes_one_step_after_the_last(schedule: str) -> None:
    optim = OptimConfig(lr=1.0, schedule=schedule, warmup_steps=1)
    assert learning_rate(optim, 5, 5) > 0
    assert learning_rate(optim, 6, 5) == pytest.approx(0, abs=1e-12)


def test_unknown() -> None:
    with pytest.raises(ValueError, match=r"optim\.schedule='square'"):
        rates("square", 0, 2)
