"""Datasets streamed by `datasets`: from local folders here, which go the same way as those of the hub."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_prep.errors import DataError
from data_prep.read import Source, find_files
from tests.data_prep.corpus import write_jsonl
from tests.data_prep.read.reading import read, skipped, texts


def _dataset(folder: Path) -> Path:
    for number in range(3):
        rows = [{"text": f"text {number} {row}", "id": row} for row in range(4)]
        write_jsonl(folder / "data" / f"train-{number:05d}.jsonl", rows)
    write_jsonl(folder / "data" / "test-00000.jsonl", [{"text": None, "id": 0}, {"text": "held out", "id": 1}])
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def test_shards_are_files(tmp_path: Path) -> None:
    folder = _dataset(tmp_path / "mine")
    files = find_files(Source("s", str(folder), format="dataset", split="train"))
    assert [file.name for file in files] == [f"train-{number:05d}-of-00003" for number in range(3)]
    assert len({file.version for file in files}) == 1
    records = read(folder, format="dataset", split="train")
    assert texts(records) == [f"text {number} {row}" for number in range(3) for row in range(4)]
    assert [record.line for record in records] == [1, 2, 3, 4] * 3
    assert skipped(read(folder, format="dataset", split="test")) == [(1, "text is null")]


def test_a_changed_dataset_has_another_version(tmp_path: Path) -> None:
    folder = _dataset(tmp_path / "mine")
    source = Source("s", str(folder), format="dataset", split="train")
    before = find_files(source)[0].version
    assert find_files(source)[0].version == before
    path = folder / "data" / "train-00001.jsonl"
    path.write_text(json.dumps({"text": "changed", "id": 1}) + "\n")
    assert find_files(source)[0].version != before


def test_a_split_must_be_named_where_there_are_several(tmp_path: Path) -> None:
    folder = _dataset(tmp_path / "mine")
    with pytest.raises(DataError, match=r"has the splits .*train.*: set split to one"):
        read(folder, format="dataset")
    with pytest.raises(DataError, match=r"cannot be loaded"):
        read(folder, format="dataset", split="valid")


def test_a_row_that_the_library_cannot_read(tmp_path: Path) -> None:
    folder = _dataset(tmp_path / "mine")
    (folder / "data" / "train-00002.jsonl").write_bytes(b'{"text": "fine", "id": 1}\n{"text": [1}')
    with pytest.raises(DataError, match=r"shard 2 breaks off after row \d"):
        read(folder, format="dataset", split="train")
