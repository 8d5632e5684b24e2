"""Bad input is refused before the first step, with one error that names it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.models.tiny import tiny_config
from tests.train.data import TinyData, make_data
from tests.train.runs import train_here
from tests.workers import run_on


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data__index": "{tmp}/none"}, ("anchorcontext pack",)),
        ({"data__window_tokens": 128}, ("data.window_tokens=128", "packed at 96")),
        ({"model__path": "{tmp}/no_model"}, ("model.path=", "no_model")),
        ({"model__init": "pretrained"}, ("model.path=",)),
        ({"model__path": "{tmp}/small"}, ("its tokenizer has 258 tokens, the model 100",)),
        ({"model__tokenizer": "{tmp}/other"}, ("tokenizer",)),
        ({"run__resume": "{tmp}/none"}, ("run.resume=", "no complete checkpoint")),
    ],
)
def test_refused_on_every_rank(
    tiny_data: TinyData, tmp_path: Path, changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    tiny_config(vocab_size=100).save_pretrained(tmp_path / "small")
    changes = {key: value.format(tmp=tmp_path) if isinstance(value, str) else value for key, value in changes.items()}
    errors = run_on(2, train_here, tiny_data.config(tmp_path / "run", **changes))
    assert errors[0] == errors[1]
    assert errors[0].split(":")[0] in ("ConfigError", "DamagedError", "DataError")
    for word in words:
        assert word in errors[0]


def train_on_rank(config: Any, indexes: list[Path]) -> str | None:
    config.data.index = str(indexes[int(os.environ["RANK"])])
    return train_here(config)


def test_ranks_with_different_indexes_are_found(tiny_data: TinyData, tmp_path: Path) -> None:
    other = make_data(tmp_path / "other", seed=1)
    errors = run_on(2, train_on_rank, tiny_data.config(tmp_path / "run"), [tiny_data.index, other.index])
    assert errors[0] == errors[1]
    assert errors[0].startswith("RunError: the hash of the pack index differs between ranks: rank 0 has ")
