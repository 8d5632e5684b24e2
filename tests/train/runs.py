"""Whole training runs on test workers, stopped where a test wants them to, and what they leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from anchorcontext.config.schema import TrainConfig
from anchorcontext.train.run_folder import step_name

TIMES = ("step_seconds", "tokens_per_second", "peak_memory_gib")


class CrashError(Exception):
    """A run that stops without a word."""


def train_here(config: TrainConfig, crash_before_step: int | None = None, export: bool = False) -> str | None:
    """Train on this rank; returns the error that ended the run, None where it came to its end.

    Args:
        crash_before_step: raise when this step's gradients are there and its update is not.
    """
    from anchorcontext.train import loop
    from anchorcontext.train.engine import take_step

    def take_step_or_crash(engine: Any, rate: float) -> float:
        if crash_before_step is not None and engine.global_steps + 1 == crash_before_step:
            raise CrashError
        return take_step(engine, rate)

    with (
        mock.patch.object(loop, "take_step", take_step_or_crash),
        mock.patch.object(loop, "export", loop.export if export else mock.Mock()),
    ):
        try:
            loop.train(config)
        except (CrashError, RuntimeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
    return None


def metrics(run: Path) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl without what a clock or the memory says."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def checkpoint(run: Path, step: int) -> dict[str, Any]:
    """Everything in a checkpoint, by file."""
    folder = run / "checkpoints" / step_name(step)
    tensors = {path.name: torch.load(path, weights_only=False) for path in sorted(folder.glob("*.pt"))}
    return {**tensors, "state.json": json.loads((folder / "state.json").read_text())}


def assert_identical(ours: Any, theirs: Any, where: str = "") -> None:
    """Equal to the last bit, through any nesting."""
    if isinstance(ours, torch.Tensor):
        assert ours.dtype == theirs.dtype, where
        assert torch.equal(ours, theirs), f"{where} differs by {(ours.double() - theirs.double()).abs().max()}"
    elif isinstance(ours, dict):
        assert ours.keys() == theirs.keys(), where
        for key in ours:
            assert_identical(ours[key], theirs[key], f"{where}/{key}")
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs), where
        for number, pair in enumerate(zip(ours, theirs, strict=True)):
            assert_identical(*pair, f"{where}/{number}")
    elif hasattr(ours, "tobytes"):
        assert ours.tobytes() == theirs.tobytes(), where
    elif not hasattr(ours, "__dict__"):  # DeepSpeed's own bookkeeping objects hold the tensors met above
        assert ours == theirs, where
