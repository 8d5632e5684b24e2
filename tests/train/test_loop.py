"""The loop stops at numbers that are none, on every rank, and saves nothing of that step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from anchorcontext.config.schema import TrainConfig
from anchorcontext.train.run_folder import step_folders
from tests.train.data import TinyData
from tests.train.runs import train_here
from tests.workers import run_on


def train_with_poison(config: TrainConfig, what: str, step: int, poisoned_rank: int) -> str | None:
    """Train, one rank's loss or gradients spoilt at a step."""
    import torch.distributed as dist

    from anchorcontext.models.loss import CausalLMLoss

    forward = CausalLMLoss.forward
    calls = 0

    def poisoned(self: CausalLMLoss, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        loss = forward(self, *args, **kwargs)
        if calls != step or dist.get_rank() != poisoned_rank:
            return loss
        if what == "loss":
            return loss * math.nan
        loss.register_hook(lambda gradient: gradient * math.inf)
        return loss

    with mock.patch.object(CausalLMLoss, "forward", poisoned):
        return train_here(config)


@pytest.mark.parametrize(
    ("what", "stage"), [("loss", 1), ("gradient norm", 0), ("gradient norm", 1), ("gradient norm", 3)]
)
def test_not_a_number(tiny_data: TinyData, tmp_path: Path, what: str, stage: int) -> None:
    config = tiny_data.config(
        tmp_path, deepspeed__zero_stage=stage, training__micro_batch_windows=2, training__save_every_steps=1
    )
    errors = run_on(2, train_with_poison, config, what, 3, 1)
    assert errors[0] == errors[1]
    assert errors[0] is not None
    assert errors[0].startswith(f"NotFiniteError: the {what} of step 3 is ")
    assert [step for step, _ in step_folders(tmp_path / "checkpoints")] == [1, 2]
