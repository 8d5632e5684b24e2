"""The bytes of input files: remote, compressed, cut short."""

from __future__ import annotations

import gzip
import hashlib
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from data_prep.errors import DataError
from data_prep.read import Source, content_hash, find_files, open_records, open_stream, split_file
from tests.data_prep.read.reading import read, texts

_TEXT = b"".join(b"line %d of the file\n" % number for number in range(5000))

_PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".xz": lzma.compress,
}


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
        with pytest.raises(DataError, match=r"a\.jsonl cannot be read further: division by zero"):
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


def _read(path: Path) -> bytes:
    (file,) = find_files(Source("s", str(path)))
    with open_stream(file) as stream:
        return stream.file.read()


@pytest.mark.parametrize("suffix", _PACK)
def test_bytes_read_are_counted_and_hashed_as_they_lie_on_disk(tmp_path: Path, suffix: str) -> None:
    on_disk = _PACK[suffix](_TEXT)
    (tmp_path / f"a.txt{suffix}").write_bytes(on_disk)
    (file,) = find_files(Source("s", str(tmp_path)))
    told: list[int] = []
    with open_stream(file, told.append) as stream:
        assert stream.file.readline() == b"line 0 of the file\n"
        sha256 = stream.finish()
    assert sum(told) == stream.num_bytes == file.num_bytes == len(on_disk)
    assert sha256 == hashlib.sha256(on_disk).hexdigest()


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".xz"])
def test_archives_of_several_frames_with_padding(tmp_path: Path, suffix: str) -> None:
    padding = b"" if suffix == ".zst" else bytes(8)
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(_PACK[suffix](b"one\n") + padding + _PACK[suffix](_TEXT) + padding + _PACK[suffix](b"two\n"))
    assert _read(path) == b"one\n" + _TEXT + b"two\n"


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".xz"])
def test_large_and_very_dense_archives(tmp_path: Path, suffix: str) -> None:
    text = _TEXT * 40 + bytes(20 << 20) + _TEXT
    (tmp_path / f"a.txt{suffix}").write_bytes(_PACK[suffix](text))
    assert _read(tmp_path / f"a.txt{suffix}") == text


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".xz"])
@pytest.mark.parametrize("kept", [0, 1, 12, 100, -8, -1])
def test_a_truncated_archive_is_named(tmp_path: Path, suffix: str, kept: int) -> None:
    (tmp_path / f"a.txt{suffix}").write_bytes(_PACK[suffix](_TEXT)[:kept])
    with pytest.raises(DataError, match=rf"a\.txt\{suffix} is truncated"):
        _read(tmp_path / f"a.txt{suffix}")


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".xz"])
def test_a_damaged_archive_is_named(tmp_path: Path, suffix: str) -> None:
    data = bytearray(_PACK[suffix](_TEXT * 3))
    data[len(data) // 2] ^= 0xFF
    (tmp_path / f"a.txt{suffix}").write_bytes(
        bytes(data) if suffix != ".zst" else b"\x28\xb5\x2f\xfd" + bytes(data[9:])
    )
    (tmp_path / f"b.txt{suffix}").write_bytes(b"plain text")
    (tmp_path / f"c.txt{suffix}").write_bytes(_PACK[suffix](_TEXT) + b"garbage")
    for name in ("a", "b", "c"):
        with pytest.raises(DataError, match=rf"{name}\.txt\{suffix} is (not sound|truncated)"):
            _read(tmp_path / f"{name}.txt{suffix}")


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x")
    (file,) = find_files(Source("s", str(tmp_path)))
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataError, match=r"a\.txt cannot be read"), open_stream(file):
        pass
