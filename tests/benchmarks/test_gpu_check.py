"""The GPU check: all of it that a CPU can run, and what becomes of checks that fail, crash or have no time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu_check, gpu_check_items
from benchmarks.gpu_check import Check, Group, Verdict

CPU = torch.device("cpu")


@pytest.mark.slow
def test_all_that_a_cpu_can_run(tmp_path: Path) -> None:
    assert gpu_check.main(["--device=cpu", "--seconds=900", f"--output={tmp_path}"]) == 0
    content = json.loads((tmp_path / "gpu_check.json").read_text(encoding="utf-8"))
    verdicts = {check["name"]: check["verdict"] for check in content["checks"]}
    assert set(verdicts.values()) == {"PASS"}
    names = [check.name for group in gpu_check.groups("cpu", 0, "") for check in group.checks]
    assert list(verdicts) == names
    assert {"exchange ring, 2 ranks", "training step, ZeRO 3", "resume", "export"} <= set(names)
    lines = (tmp_path / "gpu_check.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4 + len(names)


def test_a_failure_stops_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = (Check("a", "kernel", ("cpu", "float32")), Check("b", "kernel", ("flash", "float16")))
    answers = [gpu_check._checked(check, CPU) for check in (*checks, Check("c", "kernel", ("none", "float32")))]
    assert [answer["verdict"] for answer in answers] == ["PASS", "SKIPPED", "FAIL"]
    assert answers[1]["reason"] == "it needs a GPU"
    assert "KeyError" in answers[2]["reason"]


def test_a_wrong_kernel_fails_by_head_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(name: str, device: Any, dtype: Any, size: int) -> None:
        if size > 128:
            raise RuntimeError("its output is off")

    monkeypatch.setattr(gpu_check_items, "run_self_test", wrong)
    with pytest.raises(RuntimeError, match="16 of 32 head sizes fail; head size 136: its output is off"):
        gpu_check_items.kernel(CPU, "cpu", "float32")


def test_without_time_everything_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    todo = [Group((Check("a", "kernel"), Check("b", "kernel")), 2)]
    verdicts = gpu_check.run(todo, "cpu", seconds=0)
    assert [(verdict.name, verdict.verdict) for verdict in verdicts] == [("a", "SKIPPED"), ("b", "SKIPPED")]


@pytest.mark.parametrize(("ended", "verdict"), [("its process ended: SIGSEGV", "FAIL"), ("", "SKIPPED")])
def test_a_crash_fails_what_was_left(monkeypatch: pytest.MonkeyPatch, ended: str, verdict: str) -> None:
    passed = {"verdict": "PASS", "reason": "", "seconds": 1.0, "figures": {}}

    def start(group: Group, device: str, deadline: float, folder: str) -> str:
        (Path(folder) / "0").write_text(json.dumps(passed) + "\n" + '{"half a line')
        return ended

    monkeypatch.setattr(gpu_check, "_start", start)
    verdicts = gpu_check.run([Group((Check("a", "x"), Check("b", "x")))], "cpu", 60)
    assert [each.verdict for each in verdicts] == ["PASS", verdict]


def test_the_exit_code_says_whether_any_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for verdict, code in (("PASS", 0), ("SKIPPED", 0), ("FAIL", 1)):
        monkeypatch.setattr(gpu_check, "run", lambda *args, verdict=verdict: [Verdict("a", verdict, "because | so")])
        assert gpu_check.main(["--device=cpu", f"--output={tmp_path}"]) == code
    assert "because \\| so" in (tmp_path / "gpu_check.md").read_text(encoding="utf-8")
