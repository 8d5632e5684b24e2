"""Interrupted = uninterrupted: the same weights, optimizer and metrics, to the last bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.train.data import TinyData
from tests.train.runs import assert_identical, checkpoint, metrics, train_here
from tests.workers import run_on


@pytest.mark.parametrize(
    ("stage", "precision", "context_size", "micro_windows"),
    [
        (1, "bf16", 2, 2),
        (3, "float32", 1, 1),
        pytest.param(1, "float32", 1, 1, marks=pytest.mark.slow),
        pytest.param(3, "bf16", 1, 1, marks=pytest.mark.slow),
        pytest.param(3, "float32", 2, 2, marks=pytest.mark.slow),
        pytest.param(0, "float32", 1, 2, marks=pytest.mark.slow),
        pytest.param(2, "bf16", 1, 1, marks=pytest.mark.slow),
        pytest.param(2, "float32", 2, 1, marks=pytest.mark.slow),
    ],
)
def test_twice_in_a_row(
    tiny_data: TinyData, tmp_path: Path, stage: int, precision: str, context_size: int, micro_windows: int
) -> None:
    changes = {
        "deepspeed__zero_stage": stage,
        "training__precision": precision,
        "context_parallel__size": context_size,
        "training__micro_batch_windows": micro_windows,
        "optim__schedule": "cosine",
        "optim__warmup_steps": 2,
        "optim__max_grad_norm": 1.0,
    }
    straight, interrupted = tmp_path / "straight", tmp_path / "interrupted"
    assert run_on(2, train_here, tiny_data.config(straight, **changes)) == [None, None]

    config = tiny_data.config(interrupted, **changes)
    for crash_before_step, committed in ((4, 2), (6, 4)):
        assert run_on(2, train_here, config, crash_before_step) == ["CrashError: "] * 2
        assert (interrupted / "checkpoints" / "latest").read_text() == f"step-{committed:06d}\n"
        assert len(metrics(interrupted)) == crash_before_step - 1  # more than the checkpoint holds
    assert run_on(2, train_here, config) == [None, None]

    assert metrics(interrupted) == metrics(straight)
    assert_identical(checkpoint(interrupted, 6), checkpoint(straight, 6))
