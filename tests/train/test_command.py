"""The command as people start it: under both launchers and without one, killed and started again."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.train.data import TinyData
from tests.train.runs import assert_identical, checkpoint, metrics, train_here
from tests.workers import kill_workers_once, run_on

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
LAUNCHERS = {
    "torchrun": [*TORCHRUN, "-m", "anchorcontext.train"],
    "deepspeed": [
        sys.executable,
        "-m",
        "deepspeed.launcher.runner",
        "--num_gpus",
        "2",
        "--module",
        "anchorcontext.train",
    ],
    "alone": [sys.executable, "-m", "anchorcontext.train"],
}
LONG = {"training__steps": 20, "training__save_every_steps": 5, "training__precision": "bf16"}


def start(launcher: str, overrides: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen([*LAUNCHERS[launcher], *overrides], stdout=output, stderr=output)


def kill_after(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Kill a job and all its ranks, without warning, once `path` exists."""
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a job and all its ranks, without warning."""
    ranks = psutil.Process(process.pid).children(recursive=True)  # in sessions of their own: no group holds all
    for member in (process, *ranks):
        with suppress(psutil.NoSuchProcess):  # ended just now
            member.kill()
    process.wait()
    psutil.wait_procs(ranks)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_killed_ranks_go_on_as_if_they_had_not_been(tiny_data: TinyData, tmp_path: Path) -> None:
    killed, straight = tmp_path / "killed", tmp_path / "straight"
    changes = {"context_parallel__size": 2, "training__precision": "bf16"}
    config = tiny_data.config(killed, **changes)
    kill_workers_once(killed / "checkpoints" / "step-000002", 2, train_here, config)
    assert not (killed / "checkpoints" / "step-000006").exists()
    assert run_on(2, train_here, config) == [None, None]
    assert run_on(2, train_here, tiny_data.config(straight, **changes)) == [None, None]
    assert metrics(killed) == metrics(straight)
    assert_identical(checkpoint(killed, 6), checkpoint(straight, 6))


@pytest.mark.slow
def test_killed_under_torchrun_goes_on_as_if_it_had_not_been(tiny_data: TinyData, tmp_path: Path) -> None:
    killed, straight, log = tmp_path / "killed", tmp_path / "straight", tmp_path / "log"
    overrides = tiny_data.overrides(killed, **LONG, context_parallel__size=2, deepspeed__zero_stage=1)
    kill_after(killed / "checkpoints" / "step-000005", start("torchrun", overrides, log), log)
    assert len(metrics(killed)) < 20
    assert start("torchrun", overrides, log).wait() == 0, log.read_text()

    config = tiny_data.config(straight, **LONG, context_parallel__size=2, deepspeed__zero_stage=1)
    assert run_on(2, train_here, config) == [None, None]
    assert metrics(killed) == metrics(straight)
    assert_identical(checkpoint(killed, 20), checkpoint(straight, 20))
    assert sorted(path.name for path in killed.iterdir()) == [
        ".lock",
        "checkpoints",
        "config.yaml",
        "environment.json",
        "hf",
        "metrics.jsonl",
        "overrides.yaml",
    ]
    exported = killed / "hf" / "step-000020"
    assert json.loads((exported / "provenance.json").read_text())["step"] == 20
    assert not list(Path.cwd().glob("outputs/*/*"))  # no rank left a Hydra folder


def kill_while_it_writes(run: Path, process: subprocess.Popen[bytes], chance: random.Random, log: Path) -> bool:
    """Kill a job at a random moment of its saving or exporting; False where it came to its end first."""

    def names() -> set[Path]:
        return {path for pattern in ("checkpoints/*", "hf/*", "hf/.tmp-*/*") for path in run.glob(pattern)}

    before, fresh, wanted = names(), set[Path](), chance.randint(1, 9)
    while len(fresh) < wanted:
        if process.poll() is not None:
            assert process.returncode == 0, log.read_text()
            return False
        fresh |= names() - before
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.05))
    kill(process)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_while_it_saves_rotates_and_exports(tiny_data: TinyData, tmp_path: Path, seed: int) -> None:
    """Every kill falls on files being written; what the run leaves in the end is as if there had been none."""
    killed, straight, log, chance = tmp_path / "killed", tmp_path / "straight", tmp_path / "log", random.Random(seed)
    changes = {"training__steps": 12, "training__save_every_steps": 1, "training__keep_checkpoints": 1}
    overrides = tiny_data.overrides(killed, **changes)
    kills = 0
    while kills < 10 and kill_while_it_writes(killed, start("alone", overrides, log), chance, log):
        kills += 1
    assert kills > 2
    assert start("alone", overrides, log).wait() == 0, log.read_text()

    assert run_on(1, train_here, tiny_data.config(straight, **changes), None, True) == [None]
    assert metrics(killed) == metrics(straight)
    assert_identical(checkpoint(killed, 12), checkpoint(straight, 12))
    for folder in ("checkpoints", "hf", "hf/step-000012"):
        assert names_in(killed / folder) == names_in(straight / folder)
    for path in (straight / "hf" / "step-000012").iterdir():
        assert (killed / "hf" / "step-000012" / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["deepspeed", "alone"])
def test_other_ways_to_start(tiny_data: TinyData, tmp_path: Path, launcher: str) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    assert start(launcher, tiny_data.overrides(run, deepspeed__zero_stage=3), log).wait() == 0, log.read_text()
    ranks = 1 if launcher == "alone" else 2
    assert json.loads((run / "environment.json").read_text())["world_size"] == ranks
    straight = tmp_path / "straight"
    run_on(ranks, train_here, tiny_data.config(straight, deepspeed__zero_stage=3))
    assert metrics(run) == metrics(straight)
    assert (run / "hf" / "step-000006" / "model.safetensors").exists()
