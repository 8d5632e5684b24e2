"""metrics.jsonl, and what its numbers are."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest
import torch

from anchorcontext.config.schema import LoggerConfig
from anchorcontext.errors import RunError
from anchorcontext.train.metrics import MetricsFile, WandbTracker, peak_memory_gib
from tests.train.data import TinyData
from tests.train.runs import metrics, train_here
from tests.workers import run_on


def lines(path: Path) -> list[float]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_goes_on_after_the_checkpoint_and_drops_what_it_does_not_hold(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, 0)
    for step in range(1, 6):
        file.write({"step": step})
        assert lines(path)[-1] == step  # flushed
    file.close()
    with path.open("ab") as half_written:  # and garbage, as a power cut leaves it
        half_written.write(b'{"step": 6, "lo\xff\xfe')
    file = MetricsFile(path, 3)
    file.write({"step": 4})
    file.close()
    assert lines(path) == [1, 2, 3, 4]


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracker = WandbTracker(LoggerConfig(name="wandb"), "run", tmp_path, {"a": 1})
    tracker.write({"step": 1, "loss": 2.0})
    tracker.close()
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_wandb_that_cannot_begin_ends_the_run_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wandb.init", mock.Mock(side_effect=ConnectionError("refused")))
    with pytest.raises(RunError, match=r"ConnectionError: refused.*WANDB_MODE=offline"):
        WandbTracker(LoggerConfig(name="wandb"), "run", tmp_path, {})


def test_a_moved_run_stays_the_same_in_wandb_and_a_new_one_in_its_place_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    monkeypatch.setattr("wandb.init", lambda **options: begun.append(options["id"]))
    for folder in (tmp_path / "run", tmp_path / "moved", tmp_path / "run"):
        if folder.name == "moved":
            (tmp_path / "run").rename(folder)
        folder.mkdir(exist_ok=True)
        WandbTracker(LoggerConfig(name="wandb"), "run", folder, {})
    assert begun[0] == begun[1] != begun[2]


def test_peak_memory_counts_tensors() -> None:
    before = peak_memory_gib(torch.device("cpu"))
    held = torch.ones(2**26)  # 0.25 GiB
    assert peak_memory_gib(torch.device("cpu")) >= before
    assert peak_memory_gib(torch.device("cpu")) > 0.25
    del held


def test_the_same_numbers_from_any_ranks(tiny_data: TinyData, tmp_path: Path) -> None:
    """The loss is over all ranks (not rank 0's alone), the rate a closed form of the step at any world size."""
    changes = {"optim__schedule": "linear", "optim__warmup_steps": 2, "training__save_every_steps": 0}
    found = []
    for world_size, context_size in ((1, 1), (2, 1), (2, 2)):
        run = tmp_path / f"{world_size}-{context_size}"
        config = tiny_data.config(run, context_parallel__size=context_size, **changes)
        assert run_on(world_size, train_here, config) == [None] * world_size
        found.append(metrics(run))
    for number, reference in enumerate(found[0]):
        for other in (run[number] for run in found[1:]):
            assert other == pytest.approx(reference, rel=1e-4)
    assert [line["learning_rate"] for line in found[0]] == pytest.approx([5e-4, 1e-3, 1e-3, 7.5e-4, 5e-4, 2.5e-4])
    last = found[0][-1]
    assert (last["step"], last["windows_consumed"], last["epoch"]) == (6, 24, 0)
    assert last["tokens"] <= 24 * 96
