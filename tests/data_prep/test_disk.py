"""Files are whole or absent, and a folder has one writer."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path

import pytest

from data_prep.disk import CheckedFile, digest_file, digest_json, only_writer, read_json, write_file, write_json
from data_prep.errors import DataError


def test_a_file_appears_only_when_committed(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    file = CheckedFile(path)
    file.write(b"one")
    assert not path.exists()
    file.write(memoryview(b"two"))
    assert file.commit() == {"bytes": 6, "sha256": hashlib.sha256(b"onetwo").hexdigest()}
    assert path.read_bytes() == b"onetwo"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_file(path, b"old")
    with pytest.raises(TypeError):
        write_file(path, "text")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_json_round_trip_and_digests(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": [1, None], "a": "\u00e9"})
    assert read_json(tmp_path / "a.json") == {"a": "\u00e9", "b": [1, None]}
    assert digest_json({"a": 1, "b": 2}) == digest_json({"b": 2, "a": 1})
    assert digest_file(tmp_path / "a.json") == hashlib.sha256((tmp_path / "a.json").read_bytes()).hexdigest()


def test_damaged_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"half": ')
    with pytest.raises(DataError, match=r"manifest\.json is damaged"):
        read_json(tmp_path / "manifest.json")


def test_a_folder_has_one_writer_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with only_writer(folder), pytest.raises(DataError, match="written by another process"), only_writer(folder):
        pass
    with only_writer(folder):
        pass


def test_a_folder_that_cannot_be_held_is_named_with_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(DataError, match=r"store cannot be held .*No locks available"), only_writer(tmp_path / "store"):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="file cannot be held"), only_writer(tmp_path / "file"):
        pass


def test_errors_of_the_holder_are_its_own(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), only_writer(tmp_path):
        raise BlockingIOError


def test_a_full_disk_is_named_with_the_way_out(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match=r"store: No space left on device: free some space"),
        only_writer(tmp_path / "store"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DataError, match=r"a\.bin: Permission denied: change"), only_writer(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied", "a.bin")


@pytest.mark.parametrize("text", ["[]", "null", "3"])
def test_json_that_is_no_object_is_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DataError, match=r"manifest\.json is damaged \(a \w+ where an object should be\)"):
        read_json(tmp_path / "manifest.json")
