"""What people see of a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anchorcontext.train.batches import Batches
from anchorcontext.train.report import open_reporter
from anchorcontext.train.run_folder import RunFolder
from tests.train.fakes import FakeWindows, alone, train_config

METRICS = {"step": 5, "loss": 2.5, "tokens_per_second": 1234.0, "grad_norm": 0.25}


def run(folder: Path, rank: int = 0) -> Any:
    ranks = alone(rank=rank, world_size=2)
    state = SimpleNamespace(step=4)
    warnings = ["optim.lr was 1, from here on it is 2"]
    config = train_config()
    batches = Batches(FakeWindows(), config, ranks)
    return SimpleNamespace(
        config=config, ranks=ranks, folder=RunFolder(folder), state=state, warnings=warnings, batches=batches
    )


def test_without_a_terminal_a_step_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_reporter(run(tmp_path)) as report:
        report.log(METRICS)
        report.advance(5)
    shown = capsys.readouterr().err
    assert "warning: optim.lr was 1, from here on it is 2\n" in shown
    assert "6 steps x 12 windows = up to 6,912 tokens, 6.00 epochs of the index's 12 windows" in shown
    assert "windows are seen up to 6 times; 4 steps are done\n" in shown
    assert "step 5/6  loss 2.5000  1,234 tokens/s  grad norm 0.250\n" in shown
    assert '"step": 5' in (tmp_path / "metrics.jsonl").read_text()


def test_on_a_terminal_a_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the pipe for a terminal
    monkeypatch.setenv("COLUMNS", "160")
    with open_reporter(run(tmp_path)) as report:
        report.log(METRICS)
        report.advance(6)
    shown = capsys.readouterr().err
    assert "6/6" in shown
    assert "loss 2.5000" in shown
    assert "step 5/6" not in shown


def test_other_ranks_are_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_reporter(run(tmp_path, rank=1)) as report:
        report.log(METRICS)
        report.say("a word")
        report.advance(5)
    assert capsys.readouterr().err == ""
    assert not (tmp_path / "metrics.jsonl").exists()
