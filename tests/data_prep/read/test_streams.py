"""Input files as bytes: counted, hashed, and damaged archives named."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from data_prep.errors import DataError
from data_prep.read import Source, find_files, open_stream

_TEXT = b"".join(b"line %d of the file\n" % number for number in range(5000))


def _read(path: Path) -> bytes:
    (file,) = find_files(Source("s", str(path)))
    with open_stream(file) as stream:
        return stream.file.read()


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_bytes_read_are_counted_and_hashed_as_they_lie_on_disk(tmp_path: Path, name: str) -> None:
    on_disk = gzip.compress(_TEXT) if name.endswith(".gz") else _TEXT
    (tmp_path / name).write_bytes(on_disk)
    (file,) = find_files(Source("s", str(tmp_path)))
    told: list[int] = []
    with open_stream(file, told.append) as stream:
        assert stream.file.readline() == b"line 0 of the file\n"
        sha256 = stream.finish()
    assert sum(told) == stream.num_bytes == file.num_bytes == len(on_disk)
    assert sha256 == hashlib.sha256(on_disk).hexdigest()


def test_gzip_of_several_members(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert _read(tmp_path / "a.txt.gz") == b"one\ntwo\n"


@pytest.mark.parametrize("kept", [1, 12, 100, -8, -1])
def test_truncated_gzip_names_the_file(tmp_path: Path, kept: int) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(_TEXT)[:kept])
    with pytest.raises(DataError, match=r"a\.txt\.gz is (truncated|not sound gzip)"):
        _read(tmp_path / "a.txt.gz")


def test_damaged_gzip_names_the_file(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(_TEXT))
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "a.txt.gz").write_bytes(bytes(data))
    (tmp_path / "b.txt.gz").write_bytes(b"plain text")
    for name in ("a.txt.gz", "b.txt.gz"):
        with pytest.raises(DataError, match=rf"{name} is not sound gzip data"):
            _read(tmp_path / name)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x")
    (file,) = find_files(Source("s", str(tmp_path)))
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataError, match=r"a\.txt cannot be read"), open_stream(file):
        pass
