"""Parquet and Arrow as pyarrow and `datasets` write them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_prep.errors import DataError
from data_prep.read import Source, TokenDocument, check_has_documents, find_files, open_records, split_file
from data_prep.read.formats.columns import read_arrow
from tests.data_prep.read.reading import read, skipped, texts, tokens

_ROWS: list[dict[str, Any]] = [
    {"id": number, "text": f"text {number}" if number % 7 else None, "lang": "en" if number % 2 else "de"}
    for number in range(200)
]


def _write_arrow(path: Path, table: pa.Table, kind: str) -> None:
    new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)


def _write(path: Path, table: pa.Table, kind: str) -> Path:
    if kind == "parquet":
        pq.write_table(table, path / "a.parquet", row_group_size=30)
    else:
        _write_arrow(path / "a.arrow", table, kind)
    return path


@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_rows_in_order(tmp_path: Path, kind: str, text: pa.DataType) -> None:
    columns = {name: pa.array([row[name] for row in _ROWS]) for name in ("id", "lang")}
    columns["text"] = pa.array([row["text"] for row in _ROWS], pa.string()).cast(text)
    records = read(_write(tmp_path, pa.table(columns), kind))
    assert texts(records) == [row["text"] for row in _ROWS if row["text"]]
    assert skipped(records) == [(number + 1, "text is null") for number in range(0, 200, 7)]
    assert [record.line for record in records] == list(range(1, 201))


@pytest.mark.parametrize("kind", ["parquet", "file"])
def test_where_and_a_text_that_is_no_utf8(tmp_path: Path, kind: str) -> None:
    broken = pa.array([b"fine", b"\xff", b"also"], pa.binary())
    table = pa.table({"text": pa.Array.from_buffers(pa.string(), 3, broken.buffers()), "lang": ["en", "en", "de"]})
    records = read(_write(tmp_path, table, kind), where={"lang": "en"})
    assert texts(records) == ["fine"]
    assert skipped(records) == [(2, "bad UTF-8"), (3, "left out by where")]


@pytest.mark.parametrize("kind", ["parquet", "stream"])
def test_without_the_text_field_every_row_is_counted_and_fields_are_listed(tmp_path: Path, kind: str) -> None:
    _write(tmp_path, pa.table({"body": ["a"] * 99, "url": ["b"] * 99}), kind)
    assert skipped(read(tmp_path)) == [(number, "no text field") for number in range(1, 100)]
    source = Source("s", str(tmp_path))
    with pytest.raises(DataError, match=r"no field 'text' in any record\. Fields found: body, url\. Set text_field"):
        check_has_documents(source, find_files(source))


def test_parquet_is_cut_between_row_groups(tmp_path: Path) -> None:
    _write(tmp_path, pa.Table.from_pylist(_ROWS), "parquet")
    (file,) = find_files(Source("s", str(tmp_path)))
    whole = read(tmp_path)
    for unit_bytes in (1, 500, file.num_bytes // 2, file.num_bytes):
        assert read(tmp_path, unit_bytes) == whole
    assert len(split_file(file, 1)) == 7


@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
@pytest.mark.parametrize("kept", [0, 3, 100, -8, -5])
def test_a_truncated_file_is_named(tmp_path: Path, kind: str, kept: int) -> None:
    (path,) = _write(tmp_path, pa.Table.from_pylist(_ROWS), kind).iterdir()
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=rf"{path.name} is (not sound|cut short)"):
        read(tmp_path)


def test_a_dataset_saved_by_datasets(tmp_path: Path) -> None:
    dataset = datasets.Dataset.from_list(_ROWS)
    dataset.save_to_disk(str(tmp_path / "saved"), num_shards=3)
    loaded = datasets.load_from_disk(str(tmp_path / "saved"))
    loaded.map(lambda row: {"text": "of the cache"}, cache_file_name=str(tmp_path / "saved" / "cache-0.arrow"))
    assert texts(read(tmp_path / "saved")) == [row["text"] for row in _ROWS if row["text"]]


def test_splits_of_a_saved_dataset(tmp_path: Path) -> None:
    train, test = (datasets.Dataset.from_dict({"text": [name]}) for name in ("train", "test"))
    datasets.DatasetDict({"train": train, "test": test}).save_to_disk(str(tmp_path / "both"))
    with pytest.raises(DataError, match=r"has the splits test, train: set split to one of them"):
        read(tmp_path / "both")
    with pytest.raises(DataError, match="not valid"):
        read(tmp_path / "both", split="valid")
    assert texts(read(tmp_path / "both", split="train")) == ["train"]
    datasets.DatasetDict({"train": train}).save_to_disk(str(tmp_path / "one"))
    assert texts(read(tmp_path / "one")) == ["train"]


def test_rows_of_long_context_data_engineering(tmp_path: Path) -> None:
    """Rows as `slimpajama_packing` of that project saves them: ids, and a list of the sources' spans."""
    rows = [
        {
            "input_ids": list(range(10, 30)),
            "labels": 10,
            "source": [
                {"end": 5, "source": "RedPajamaC4", "start": 0},
                {"end": 12, "source": "RedPajamaBook", "start": 5},
                {"end": 20, "source": "RedPajamaC4", "start": 12},
            ],
        },
        {"input_ids": [1, 2, 3], "labels": 1, "source": [{"end": 3, "source": "RedPajamaArXiv", "start": 0}]},
    ]
    dataset = datasets.Dataset.from_list(rows)
    dataset.save_to_disk(str(tmp_path / "saved"))
    (tmp_path / "hub").mkdir()
    dataset.to_parquet(str(tmp_path / "hub" / "train-00000.parquet"))
    dataset.to_json(str(tmp_path / "hub" / "train-00001.jsonl"))
    expected = [list(range(10, 15)), list(range(15, 22)), list(range(22, 30)), [1, 2, 3]]
    options = {"token_field": "input_ids", "boundary_field": "source"}
    assert tokens(read(tmp_path / "saved", **options)) == expected
    records = read(tmp_path / "hub", **options)
    assert tokens(records) == expected * 2
    assert [record.line for record in records] == [1, 1, 1, 2] * 2
    assert all(isinstance(record, TokenDocument) and record.mask is None for record in records)


@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
def test_a_table_that_is_replaced_while_it_is_read(tmp_path: Path, kind: str) -> None:
    (tmp_path / "new").mkdir()
    _write(tmp_path, pa.table({"text": ["a"] * 99}), kind)
    (new,) = _write(tmp_path / "new", pa.table({"text": ["b"] * 99}), kind).iterdir()
    os.utime(new, ns=(1, 1))
    source = Source("s", str(tmp_path / new.name))
    (file,) = find_files(source)
    with open_records(file, source) as records:
        assert next(iter(records)).line == 1
        new.rename(tmp_path / new.name)
        with pytest.raises(DataError, match="changed while it was read"):
            records.finish()


_TRUNCATED_WHILE_READ = """
import os, sys
from data_prep.read import Source, find_files, open_records
path = sys.argv[1]
source = Source("s", path)
(file,) = find_files(source)
with open_records(file, source) as records:
    rows = iter(records)
    next(rows)
    os.truncate(path, int(sys.argv[2]))
    list(rows)
    records.finish()
"""


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_table_that_is_truncated_while_it_is_read(tmp_path: Path, kind: str) -> None:
    """In a process of its own, because a read beyond the end of a memory map is a SIGBUS."""
    long = pa.table({"text": ["x" * 10_000] * 200, "other": list(range(200))})
    (path,) = _write(tmp_path, long, kind).iterdir()
    command = [sys.executable, "-c", _TRUNCATED_WHILE_READ, str(path), str(path.stat().st_size // 2)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert "DataError: " in done.stderr
    assert f"{path} is not sound arrow data" in done.stderr


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_the_share_read_grows_to_all(tmp_path: Path, kind: str) -> None:
    (path,) = _write(tmp_path, pa.Table.from_pylist(_ROWS), kind).iterdir()
    source = Source("s", str(path))
    (file,) = find_files(source)
    shares: list[float] = []
    list(read_arrow(str(path), file, source, shares.append))
    assert len(shares) == 4
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.5 < shares[-1] <= 1
