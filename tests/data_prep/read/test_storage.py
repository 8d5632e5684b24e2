"""Files at addresses of fsspec, by its file system in memory: every format reads as from the disk."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_prep.errors import DataError
from data_prep.read import Source, content_hash, find_files, open_records, split_file
from tests.data_prep.read.reading import read, texts


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield files
    files.store.clear()


def test_folders_globs_and_single_files(memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe("/bucket/a/x.jsonl", b'{"text": "x"}\n')
    memory.pipe("/bucket/b/y.jsonl.gz", gzip.compress(b'{"text": "y"}\n'))
    memory.pipe("/bucket/b/.hidden.jsonl", b'{"text": "hidden"}\n')
    assert texts(read("memory://bucket")) == ["x", "y"]
    assert [file.name for file in find_files(Source("s", "memory://bucket"))] == ["a/x.jsonl", "b/y.jsonl.gz"]
    assert texts(read("memory://bucket/b/*.jsonl.gz")) == ["y"]
    assert texts(read("memory://bucket/a/x.jsonl")) == ["x"]
    assert texts(read("memory://bucket", pattern="x*")) == ["x"]


def test_formats_that_are_read_in_any_order_are_copied_first(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [f"text {number}" for number in range(100)]}), tmp_path / "a.parquet")
    memory.pipe("/bucket/a.parquet", (tmp_path / "a.parquet").read_bytes())
    assert texts(read("memory://bucket")) == texts(read(tmp_path))
    (here,), (there,) = find_files(Source("s", str(tmp_path))), find_files(Source("s", "memory://bucket"))
    assert content_hash(here) == content_hash(there)
    assert there.mtime_ns > 0
    assert split_file(there, 1) == [there]


def test_a_truncated_remote_file_is_named(memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe("/bucket/a.jsonl.gz", gzip.compress(b'{"text": "x"}\n' * 100)[:-9])
    with pytest.raises(DataError, match=r"memory://.*/a\.jsonl\.gz is truncated"):
        read("memory://bucket")


def test_nothing_there_and_no_such_kind(memory: fsspec.AbstractFileSystem) -> None:
    with pytest.raises(DataError, match="nothing at memory://nowhere"):
        find_files(Source("s", "memory://nowhere"))
    with pytest.raises(DataError, match="nothing://a cannot be opened"):
        find_files(Source("s", "nothing://a"))


def test_a_file_that_goes_away(memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe("/bucket/a.jsonl", b'{"text": "x"}\n')
    source = Source("s", "memory://bucket")
    (file,) = find_files(source)
    memory.rm("/bucket/a.jsonl")
    with pytest.raises(DataError, match=r"a\.jsonl cannot be read"), open_records(file, source):
        pass


def test_a_file_that_fails_under_way(memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe("/bucket/a.jsonl", b'{"text": "x"}\n')
    source = Source("s", "memory://bucket")
    (file,) = find_files(source)
    with open_records(file, source) as records:
        monkeypatch.setattr(type(memory.open("/bucket/a.jsonl")), "read", lambda *arguments: 1 / 0)
        with pytest.raises(DataError, match=r"a\.jsonl cannot be read on: division by zero"):
            list(records)


def test_options_reach_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def url_to_fs(address: str, **options: object) -> tuple[object, str]:
        seen.update(options)
        raise PermissionError("no")

    monkeypatch.setattr(fsspec.core, "url_to_fs", url_to_fs)
    with pytest.raises(DataError, match="s3://bucket cannot be opened: no"):
        find_files(Source("s", "s3://bucket", storage_options={"anon": True}))
    assert seen == {"anon": True}
