"""Input files as bytes: counted, hashed, and damaged archives named."""

from __future__ import annotations

import gzip
import hashlib
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from data_prep.errors import DataError
from data_prep.read import Source, find_files, open_stream

_TEXT = b"".join(b"line %d of the file\n" % number for number in range(5000))

_PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".xz": lzma.compress,
}


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
