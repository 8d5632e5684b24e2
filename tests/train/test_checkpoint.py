"""Checkpoints: committed whole, rotated by number, refused where they do not fit."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from anchorcontext.data.order import DataState
from anchorcontext.errors import ConfigError, RunError
from anchorcontext.train.checkpoint import (
    Checkpoints,
    DamagedError,
    TrainState,
    check_layout,
    random_state,
    seed_everything,
    set_random_state,
)
from anchorcontext.train.run_folder import fixed_settings, step_name
from tests.train.data import TinyData, make_data
from tests.train.fakes import alone, train_config
from tests.train.runs import metrics, train_here
from tests.workers import run_on


def state(step: int = 2, **changes: Any) -> TrainState:
    values = {"tokens": 5, "world_size": 1, "settings": fixed_settings(train_config())}
    return TrainState(step=step, data=DataState("hash", 0, 0, 4), **{**values, **changes})


def commit(folder: Path, step: int) -> Path:
    """A checkpoint folder with little but its state."""
    (folder / step_name(step)).mkdir(parents=True)
    (folder / step_name(step) / "weights.pt").write_bytes(b"1234")
    state(step).write(folder / step_name(step))
    return folder / step_name(step)


class Here(Checkpoints):
    """Without a process group."""

    def __init__(self, folder: Path) -> None:
        ranks = alone()
        object.__setattr__(ranks, "on_main", lambda function: function())
        super().__init__(folder, ranks, keep=2)


def test_state_is_read_as_written(tmp_path: Path) -> None:
    assert TrainState.read(commit(tmp_path, 2)) == state()
    after = state().after(3, 7, DataState("hash", 0, 1, 8))
    assert (after.step, after.tokens, after.data.epoch) == (3, 12, 1)


@pytest.mark.parametrize("content", [None, "{half", "[1]", "{}", json.dumps({"format_version": 99, "files": {}})])
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "state.json").write_text(content)
    with pytest.raises(ConfigError, match=r"no complete checkpoint|format 99"):
        TrainState.read(tmp_path)


def test_a_state_of_other_fields_is_damaged(tmp_path: Path) -> None:
    folder = commit(tmp_path, 2)
    written = (folder / "state.json").read_text()
    for field in ('"tokens"', '"windows_consumed"', '"data"'):
        (folder / "state.json").write_text(written.replace(field, '"other"'))
        with pytest.raises(DamagedError, match=r"is damaged: state\.json holds other fields"):
            TrainState.read(folder)


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("unexpected pos 7040 vs 6934\n\ntrace")]
)
def test_a_full_disk_is_said_and_names_the_checkpoint(tmp_path: Path, error: Exception) -> None:
    engine = mock.Mock(save_checkpoint=mock.Mock(side_effect=error))
    with pytest.raises(RunError, match=r"step-000004 cannot be written .*(No space|7040 vs 6934\)).*goes on from"):
        Here(tmp_path).save(engine, state(4))


def test_a_damaged_one_is_refused(tmp_path: Path) -> None:
    folder = commit(tmp_path, 2)
    (folder / "weights.pt").write_bytes(b"12")
    with pytest.raises(ConfigError, match=r"damaged: weights\.pt is missing or not 4 bytes long"):
        TrainState.read(folder)


def test_auto_goes_on_from_the_newest_by_number(tmp_path: Path) -> None:
    assert Here(tmp_path).choose("auto") == (None, [])
    for step in (2, 999_999, 1_000_000):
        commit(tmp_path, step)
    (tmp_path / ".tmp-step-2000000").mkdir()
    assert Here(tmp_path).choose("auto") == (tmp_path / "step-1000000", [])


def test_auto_passes_over_damaged_ones_and_says_so(tmp_path: Path) -> None:
    sound, damaged, stateless = commit(tmp_path, 2), commit(tmp_path, 4), commit(tmp_path, 6)
    (damaged / "weights.pt").unlink()
    (stateless / "state.json").write_text("")
    chosen, warnings = Here(tmp_path).choose("auto")
    assert chosen == sound
    assert "step-000006 is no complete checkpoint" in warnings[0]
    assert "step-000004 is damaged: weights.pt is missing" in warnings[1]
    assert "goes on from step-000002" in warnings[1]
    assert "is kept as damaged-step-000004" in warnings[1]
    assert Here(tmp_path).choose("auto") == (sound, [])
    commit(tmp_path, 4)  # the name is free again

    (tmp_path / "step-000004" / "weights.pt").unlink()
    (sound / "weights.pt").unlink()
    with pytest.raises(ConfigError, match=r"no checkpoint before it is sound: delete the folder") as error:
        Here(tmp_path).choose("auto")
    assert [problem.value for problem in error.value.problems] == [tmp_path / "step-000004", sound]


def test_another_format_is_no_damage(tmp_path: Path) -> None:
    commit(tmp_path, 2)
    (commit(tmp_path, 4) / "state.json").write_text(json.dumps({"format_version": 99, "files": {}}))
    with pytest.raises(ConfigError, match="format 99"):
        Here(tmp_path).choose("auto")


def test_a_named_checkpoint(tmp_path: Path) -> None:
    other, own = tmp_path / "other", tmp_path / "own"
    named = commit(other, 4)
    assert Here(own).choose(str(named)) == (named, [])
    newer = commit(own, 6)
    assert Here(own).choose(str(named)) == (newer, [])  # the run has begun from it, and was stopped since
    older = commit(own, 2)
    with pytest.raises(ConfigError, match="the run has gone on to step-000006"):
        Here(own).choose(str(older))
    with pytest.raises(ConfigError, match="no complete checkpoint"):
        Here(own).choose(str(tmp_path / "nowhere"))


def test_another_division_is_refused_with_all_differences() -> None:
    config = train_config(deepspeed__zero_stage=3, training__precision="bf16")
    with pytest.raises(ConfigError) as error:
        check_layout(state(), config, alone(world_size=4))
    text = str(error.value)
    assert "ranks of the job=4: the checkpoint of step 2 was saved with 1" in text
    assert "deepspeed.zero_stage=3" in text
    assert "training.precision=bf16" in text
    check_layout(state(), train_config(deepspeed__zero_stage=1), alone())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("training__windows_per_step", 24),
        ("attention__arm", "full"),
        ("rope__base", 1e6),
        ("model__path", "other"),
        ("training__seed", 3),
    ],
)
def test_a_checkpoint_of_another_kind_of_run_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{key.replace('__', '.')}={value}: the checkpoint of step 2 was saved with"):
        check_layout(state(), train_config(**{key: value}), alone())


def test_another_runs_checkpoint_with_other_batches_is_refused_before_a_step(
    tiny_data: TinyData, tmp_path: Path
) -> None:
    config = tiny_data.config(tmp_path / "first", training__steps=2)
    assert run_on(1, train_here, config) == [None]
    named = str(tmp_path / "first" / "checkpoints" / "step-000002")
    changed = tiny_data.config(tmp_path / "second", run__resume=named, training__windows_per_step=2)
    (error,) = run_on(1, train_here, changed)
    assert "training.windows_per_step=2: the checkpoint of step 2 was saved with 4" in error
    assert not (tmp_path / "second" / "config.yaml").exists()  # no run: the folder is free for another
    assert run_on(1, train_here, tiny_data.config(tmp_path / "second", run__resume=named)) == [None]


def draw() -> list[float]:
    return [random.random(), float(np.random.random()), float(torch.rand(()))]


def test_random_state_comes_back() -> None:
    saved = random_state()
    first = draw()
    assert draw() != first
    set_random_state(saved)
    assert draw() == first


def test_seeds_differ_by_rank() -> None:
    saved = random_state()
    drawn = []
    for seed, rank in ((0, 0), (0, 1), (1, 0), (0, 0)):
        seed_everything(seed, rank)
        drawn.append(draw())
    set_random_state(saved)
    assert drawn[0] == drawn[3]
    for column in zip(*drawn[:3], strict=True):
        assert len(set(column)) == 3


def test_rotation_and_refusals_of_a_run(tiny_data: TinyData, tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = tiny_data.config(run, training__save_every_steps=1, training__keep_checkpoints=2)
    assert run_on(2, train_here, config) == [None, None]
    names = sorted(path.name for path in (run / "checkpoints").iterdir() if path.is_dir())
    assert names == ["step-000005", "step-000006"]
    assert (run / "checkpoints" / "latest").read_text() == "step-000006\n"

    other_data = make_data(tmp_path / "other_data", seed=1)
    more = {"training__steps": 8, "data__index": str(other_data.index)}
    for error in run_on(2, train_here, tiny_data.config(run, **more)):
        assert error.startswith("DataError: the data changed")
        assert "index_hash: was" in error
    (error,) = run_on(1, train_here, tiny_data.config(run, training__steps=8))
    assert "ranks of the job=1: the checkpoint of step 6 was saved with 2" in error

    for error in run_on(2, train_here, tiny_data.config(run, training__steps=5)):
        assert "training.steps=5: the run has taken 6 steps" in error
    assert run_on(2, train_here, config) == [None, None]  # complete: nothing to do

    shutil.rmtree(run / "checkpoints" / "step-000006")
    (run / "checkpoints" / ".tmp-step-000007").mkdir()  # as a killed save leaves it
    assert run_on(2, train_here, tiny_data.config(run, training__steps=7)) == [None, None]
    assert [line["step"] for line in metrics(run)] == [1, 2, 3, 4, 5, 6, 7]
    assert not (run / "checkpoints" / ".tmp-step-000007").exists()
