"""The run folder: made once, taken up again, and refused where it is another run's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from anchorcontext.errors import ConfigError
from anchorcontext.train.ranks import join_ranks
from anchorcontext.train.run_folder import RunFolder, compare, flatten, step_folders, step_name
from data_prep.errors import DataError
from tests.train.fakes import train_config
from tests.workers import run_on


def prepare(folder: Path, changes: dict[str, object]) -> list[str] | str:
    """Check and begin; what the check answers on this rank: its warnings, or the error."""
    config = train_config(run__folder=str(folder), **changes)
    run = RunFolder(config.run.folder)
    with join_ranks(1) as ranks:
        try:
            warnings = run.check(config, ranks)
        except ConfigError as error:
            return str(error)
        run.begin(config, ranks)
        return warnings


def take_a_step(folder: Path) -> None:
    """The trace that a logged and saved step leaves."""
    (folder / "metrics.jsonl").write_text('{"step": 1}\n')
    (folder / "checkpoints" / "step-000001").mkdir(parents=True)


def test_rank_0_makes_it_and_says_what_it_is(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "a"
    assert run_on(2, prepare, run, {}) == [[], []]
    assert yaml.safe_load((run / "config.yaml").read_text())["optim"]["lr"] == 1e-3
    assert yaml.safe_load((run / "overrides.yaml").read_text()) == []
    environment = json.loads((run / "environment.json").read_text())
    assert environment["world_size"] == 2
    assert environment["threads_per_rank"] == 1
    assert environment["threads_from"] == "OMP_NUM_THREADS"
    assert {"torch", "transformers", "deepspeed"} <= environment["versions"].keys()


def test_a_run_begins_with_its_first_step(tmp_path: Path) -> None:
    run_on(2, prepare, tmp_path, {})
    (tmp_path / "metrics.jsonl").touch()
    changes = {"attention__arm": "full", "run__resume": "never", "model__path": "other"}
    assert run_on(2, prepare, tmp_path, changes) == [[], []]
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["attention"]["arm"] == "full"


def test_taken_up_again(tmp_path: Path) -> None:
    run_on(2, prepare, tmp_path, {})
    take_a_step(tmp_path)
    for half_written in ("checkpoints/.tmp-step-000004", "hf/.tmp-step-000002"):
        (tmp_path / half_written).mkdir()
        (tmp_path / half_written / "file").touch()
    assert run_on(2, prepare, tmp_path, {"training__steps": 9, "logger__name": "wandb"}) == [[], []]
    assert not list(tmp_path.rglob(".tmp-*"))
    (warnings, _) = run_on(2, prepare, tmp_path, {"training__steps": 9, "optim__lr": 5e-4})
    assert warnings == ["optim.lr was 0.001, from here on it is 0.0005"]


def test_another_run_is_refused_with_all_its_keys(tmp_path: Path) -> None:
    run_on(2, prepare, tmp_path, {})
    take_a_step(tmp_path)
    changes = {"attention__arm": "full", "training__seed": 7, "model__path": "other", "order__balance_steps": 4}
    for message in run_on(2, prepare, tmp_path, changes):
        assert "4 problems" in message
        assert "order.balance_steps=4: was 16 when the run began" in message
        assert "model.path=other: was ??? when the run began" in message
        assert "attention.arm=full: was anchor when the run began" in message
        assert "training.seed=7: was 0 when the run began" in message
    for message in run_on(2, prepare, tmp_path, {"run__resume": "never"}):
        assert "holds a run already" in message


def test_logged_steps_without_a_checkpoint_begin_anew_and_say_so(tmp_path: Path) -> None:
    run_on(2, prepare, tmp_path, {})
    take_a_step(tmp_path)
    (tmp_path / "checkpoints" / "step-000001").rmdir()
    (warnings, _) = run_on(2, prepare, tmp_path, {"optim__lr": 5e-4})
    assert "has logged steps and no checkpoint: the run begins anew" in warnings[0]
    assert warnings[1] == "optim.lr was 0.001, from here on it is 0.0005"


@pytest.mark.parametrize("content", [b": [", b"", b"\xff\xfe"])
def test_a_damaged_config_is_named_with_the_way_out(tmp_path: Path, content: bytes) -> None:
    run_on(2, prepare, tmp_path, {})
    take_a_step(tmp_path)
    (tmp_path / "config.yaml").write_bytes(content)
    for message in run_on(2, prepare, tmp_path, {}):
        assert f"{tmp_path / 'config.yaml'}: is no config (damaged?): delete this file" in message
    (tmp_path / "config.yaml").unlink()
    assert run_on(2, prepare, tmp_path, {}) == [[], []]


def test_compare_is_pure() -> None:
    before = {"optim.lr": 1.0, "rope.base": 1e4, "run.name": "a", "data.sources.x.path": "p"}
    now = {"optim.lr": 1.0, "rope.base": 1e6, "run.name": "b", "training.save_every_steps": 3}
    problems, warnings = compare(before, now)
    assert [problem.key for problem in problems] == ["rope.base"]
    assert warnings == []


def test_a_schedule_that_follows_another_length_is_said() -> None:
    for schedule, count in (("constant", 0), ("cosine", 1), ("linear", 1)):
        before = {"training.steps": 4, "optim.schedule": schedule}
        problems, warnings = compare(before, {**before, "training.steps": 6})
        assert (problems, len(warnings)) == ([], count)
    assert "training.steps was 4, from here on it is 6: the learning rate (optim.schedule=linear)" in warnings[0]


def test_flatten() -> None:
    assert flatten({"a": {"b": {"c": 1}, "d": [2]}, "e": None}) == {"a.b.c": 1, "a.d": [2], "e": None}


def test_step_folders_sort_by_number(tmp_path: Path) -> None:
    for name in ("step-000002", "step-1000000", "step-999999", "step-x", ".tmp-step-000003"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-000007").touch()
    assert [step for step, _ in step_folders(tmp_path)] == [2, 999_999, 1_000_000]
    assert step_name(100) == "step-000100"


def hold_twice(folder: Path) -> str:
    with join_ranks(1) as ranks, RunFolder(folder).hold(ranks):
        try:
            with RunFolder(folder).hold(ranks):
                return "held twice"
        except DataError as error:
            return str(error)


def test_one_job_at_a_time(tmp_path: Path) -> None:
    for message in run_on(2, hold_twice, tmp_path):
        assert "being written by another process" in message
