"""Training takes the same steps whatever the exchange."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from anchorcontext.config.schema import TrainConfig
from tests.train.data import TinyData
from tests.train.runs import metrics, train_here
from tests.workers import run_on


def test_every_exchange_trains_alike(tiny_data: TinyData, tmp_path: Path) -> None:
    common = {"training__steps": 2, "training__precision": "float32", "context_parallel__size": 2}
    runs = {
        "gather": {"context_parallel__head_groups": 2},
        "ring": {"context_parallel__exchange": "ring", "training__keep_attention": True},
        "ulysses": {"context_parallel__exchange": "ulysses", "context_parallel__check_plans": True},
    }
    for name, changes in runs.items():
        config = tiny_data.config(tmp_path / name, **common, **changes)
        assert run_on(2, train_here, config) == [None, None]
    expected = metrics(tmp_path / "gather")
    for name in runs:
        for line, reference in zip(metrics(tmp_path / name), expected, strict=True):
            assert line == pytest.approx(reference, rel=1e-5), name


def train_with_an_unlike_plan(config: TrainConfig) -> str | None:
    """Train; rank 1 plans by another policy."""
    import torch.distributed as dist

    config.context_parallel.policy = "zigzag" if dist.get_rank() else "contiguous"
    with mock.patch("anchorcontext.train.loop.check_shared"):
        return train_here(config)


def test_unlike_plans_are_found_before_they_hang(tiny_data: TinyData, tmp_path: Path) -> None:
    config = tiny_data.config(
        tmp_path / "run", training__steps=1, context_parallel__size=2, context_parallel__check_plans=True
    )
    for error in run_on(2, train_with_an_unlike_plan, config):
        assert error is not None
        assert "ranks [1] of the context-parallel group hold a different plan than rank 0" in error
