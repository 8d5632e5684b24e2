"""Files that are either whole or absent: temporary name, fsync, rename."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson

from data_prep.errors import DataError

_PARTIAL_SUFFIX = ".partial"
_BLOCK_BYTES = 1 << 20
_POLL_SECONDS = 0.05
_OTHER_FILES = 512

_FULL = "free some space there and start again; what is finished is kept"
_LOCKED = "change its permissions, or choose another place"
_WAYS_OUT = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EACCES: _LOCKED,
    errno.EPERM: _LOCKED,
    errno.EROFS: "choose a folder that can be written",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`), or, for `pack`, set fewer `workers`",
    errno.EEXIST: "something else is there; choose another name",
    errno.EISDIR: "it is a folder; choose another name",
    errno.ENOTDIR: "a part of that path is a file; choose another",
    errno.ENAMETOOLONG: "choose a shorter name",
}


class CheckedFile:
    """A file written under a temporary name, with its SHA-256; `commit` gives it its real name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_bytes = 0
        self._sha256 = hashlib.sha256()
        self._file = open(_partial(path), "wb")  # noqa: SIM115 - closed by commit or discard

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._sha256.update(data)
        self.num_bytes += memoryview(data).nbytes

    def commit(self) -> dict[str, Any]:
        """Put the bytes on the disk under the real name; returns the file's size and checksum.

        The rename survives a power cut only after `sync_folder`, which one call does for many files.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(_partial(self.path), self.path)
        return {"bytes": self.num_bytes, "sha256": self._sha256.hexdigest()}

    def discard(self) -> None:
        self._file.close()
        _partial(self.path).unlink(missing_ok=True)


class GrowingFile:
    """A file that another process can continue if this one is killed.

    Args:
        path: a name of its own, until `commit`.
        keep_bytes: how much of an existing file is kept; the rest is truncated.
    """

    def __init__(self, path: Path, keep_bytes: int = 0) -> None:
        self.path = path
        self.num_bytes = 0
        self._sha256 = hashlib.sha256()
        self._file = open(path, "r+b" if keep_bytes else "w+b")  # noqa: SIM115 - closed by commit or close
        while self.num_bytes < keep_bytes:
            block = self._file.read(min(_BLOCK_BYTES, keep_bytes - self.num_bytes))
            if not block:
                raise OSError(f"{path} is shorter than {keep_bytes} bytes")
            self._sha256.update(block)
            self.num_bytes += len(block)
        self._file.truncate(keep_bytes)

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._sha256.update(data)
        self.num_bytes += memoryview(data).nbytes

    def sync(self) -> int:
        """Put everything written on the disk; its size."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self.num_bytes

    def commit(self, path: Path) -> dict[str, Any]:
        """Put it on the disk under another name; returns the file's size and checksum, as `CheckedFile.commit`."""
        self.sync()
        self._file.close()
        os.replace(self.path, path)
        return {"bytes": self.num_bytes, "sha256": self._sha256.hexdigest()}

    def close(self) -> None:
        self._file.close()


def write_file(path: Path, data: bytes | memoryview) -> dict[str, Any]:
    """Write a whole file, durably; returns its size and checksum."""
    file = CheckedFile(path)
    try:
        file.write(data)
        written = file.commit()
    except BaseException:
        file.discard()
        raise
    sync_folder(path.parent)
    return written


def write_json(path: Path, value: Any) -> None:
    """Write JSON that people can read, durably."""
    write_file(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that a pack wrote.

    Raises:
        DataError: none, so not a file that a pack finished.
    """
    try:
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict):
            raise ValueError(f"a {type(found).__name__} where an object should be")
        return found
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}): delete its folder and run `anchorcontext pack` again") from None


def digest_json(value: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    _sync(folder)


def sync_tree(folder: Path) -> None:
    """Make every file in and below a folder, and their names, survive a power cut."""
    for path in (*folder.rglob("*"), folder):
        _sync(path)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Make the folder and hold it against other processes that would write there too.

    Raises:
        DataError: another process holds it, or the system does not allow writing or locking there, or no more
            of what is written while it is held. The hold ends with its process, however that ends.
    """
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(open(folder / ".lock", "wb"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{folder} is being written by another process: wait for it to end") from None
        except OSError as error:
            raise DataError(
                f"{folder} cannot be held against other writers ({error}): choose a folder that can be written, "
                "on a file system with locks"
            ) from error
        try:
            yield
        except OSError as error:
            if (refused := place_error(error, folder)) is None:
                raise
            raise refused from error


def allow_open_files(count: int) -> None:
    """Raise this process's limit of open files, where it may, to `count` and some: each memory map holds one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def place_error(error: OSError, folder: Path | str) -> DataError | None:
    """What the system refused for a reason that the user can fix; None for other reasons.

    Args:
        folder: what was being written, where the error names no file.
    """
    if (way_out := _WAYS_OUT.get(error.errno or 0)) is None:
        return None
    return DataError(f"{error.filename or folder}: {error.strerror}: {way_out}")


@contextmanager
def held(path: Path, seconds: float = 30.0) -> Iterator[None]:
    """Hold a lock file, waiting for another process that ends: workers outlive a killed parent by moments.

    Raises:
        DataError: it is still held after `seconds`.
    """
    with open(path, "wb") as lock:
        until = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise DataError(f"{path.parent} is being written by another process: wait for it to end") from None
                time.sleep(_POLL_SECONDS)
        yield


def remove_partial(folder: Path) -> None:
    """Remove the unfinished files of processes that were killed."""
    for path in folder.rglob(f"*{_PARTIAL_SUFFIX}"):
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _partial(path: Path) -> Path:
    """A temporary name of this process alone: one that outlives its killed parent spoils nothing."""
    return path.with_name(f"{path.name}.{os.getpid()}{_PARTIAL_SUFFIX}")
