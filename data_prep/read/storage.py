"""The bytes of input files, local or at an address that fsspec opens (s3://, gs://, hf://, https://)."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from data_prep.errors import DataError
from data_prep.read.source import InputFile
from data_prep.read.unpack import UnpackedFile, compression_of

_BLOCK_BYTES = 1 << 20
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")
_VERSIONS = ("ETag", "etag", "sha256", "md5Hash", "content_md5", "blob_id")
_BUFFER_BYTES = 1 << 20


def is_remote(path: str) -> bool:
    """Whether the path is an address."""
    return "://" in path


def file_system(address: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The file system of an address and the path in it.

    Raises:
        DataError: an unknown kind of address, or the package for it is not installed.
    """
    import fsspec

    try:
        return fsspec.core.url_to_fs(address, **options)
    except Exception as error:  # ImportError names the package; others are the store's own
        raise DataError(f"{address} cannot be opened: {said(error)}") from error


def open_binary(path: str, options: Mapping[str, Any]) -> BinaryIO:
    """Open a file for reading, here or there, without a buffer.

    Raises:
        DataError: it cannot be opened.
    """
    try:
        if not is_remote(path):
            return open(path, "rb", buffering=0)
        files, inside = file_system(path, options)
        return files.open(inside, "rb")
    except DataError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or said(error)
        raise DataError(f"{path} cannot be read: {reason}") from error


def said(error: Exception) -> str:
    """The message of an error, or its type if it has none."""
    return str(error) or repr(error)


@contextmanager
def on_this_machine(path: str, options: Mapping[str, Any]) -> Iterator[str]:
    """The path of a file that can be read in any order: a remote one is copied to a temporary file first."""
    if not is_remote(path):
        yield path
        return
    with tempfile.NamedTemporaryFile(suffix=Path(path).suffix) as copy:
        with open_binary(path, options) as file:
            shutil.copyfileobj(file, copy, _BLOCK_BYTES)
        copy.flush()
        yield copy.name


def remote_files(address: str, options: Mapping[str, Any]) -> tuple[str, tuple[str, ...], dict[str, dict[str, Any]]]:
    """Every file at an address: a file, a folder or a glob.

    Returns:
        The path that names are relative to; the parts of the glob below it (of a file its name, of a
        folder none); and what the store says of each file, by address.

    Raises:
        DataError: the store cannot be asked.
    """
    files, path = file_system(address, options)
    wanted: tuple[str, ...] = ()
    try:
        if any(wild in path for wild in "*?["):
            found = files.glob(path, detail=True)
            fixed = path[: min(path.index(wild) for wild in "*?[" if wild in path)]
            root = fixed.rpartition("/")[0]
            wanted = PurePosixPath(path.removeprefix(root).lstrip("/")).parts
            for folder in [name for name, info in found.items() if info["type"] == "directory"]:
                found |= files.find(folder, detail=True)
        elif files.isfile(path):
            root, _, name = path.rpartition("/")
            found, wanted = {path: files.info(path)}, (name,)
        else:
            found, root = files.find(path, detail=True) if files.exists(path) else {}, path.rstrip("/")
    except Exception as error:
        raise DataError(f"{address} cannot be listed: {said(error)}") from error
    by_address = {files.unstrip_protocol(name): info for name, info in found.items() if info["type"] == "file"}
    return root, wanted, by_address


def time_and_version(info: Mapping[str, Any]) -> tuple[int, str]:
    """When a remote file last changed, in nanoseconds (0: unknown), and what the store calls its version."""
    time: Any = next((info[name] for name in _TIMES if info.get(name)), 0)
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            time = 0
    if isinstance(time, datetime):
        time = time.timestamp()
    version = next((info[name] for name in _VERSIONS if info.get(name)), "")
    return int(time * 1_000_000_000), str(version)


class InputStream:
    """An open input file, or the part of it that its span says.

    Attributes:
        file: its bytes, unpacked.
        num_bytes: bytes read from storage so far.
    """

    def __init__(self, file: InputFile, on_bytes: Callable[[int], None] | None) -> None:
        self._input = file
        self._raw = _CountedFile(file, on_bytes)
        self._buffered = io.BufferedReader(self._raw, _BUFFER_BYTES)
        self.file = cast(BinaryIO, self._buffered)
        if (suffix := compression_of(file.path)) is not None:
            self.file = cast(BinaryIO, io.BufferedReader(UnpackedFile(self.file, file.path, suffix), _BUFFER_BYTES))

    @property
    def num_bytes(self) -> int:
        return self._raw.num_bytes

    @property
    def num_newlines(self) -> int:
        """Line ends in storage so far; counted where the file is read in parts."""
        return self._raw.num_newlines

    def finish(self) -> str:
        """Read what is left and give the SHA-256 of the bytes in storage.

        Raises:
            DataError: they are not as many as when the file was found, or were written since.
        """
        while self._buffered.read(_BUFFER_BYTES):
            pass
        written = self._input.mtime_ns if is_remote(self._input.path) else self._raw.mtime_ns()
        if (self.num_bytes, written) != (self._input.num_bytes, self._input.mtime_ns):
            raise DataError(f"{self._input.path} changed while it was read: wait until it is whole and start again")
        return self._raw.sha256.hexdigest()

    def close(self) -> None:
        self._raw.close()


@contextmanager
def open_stream(file: InputFile, on_bytes: Callable[[int], None] | None = None) -> Iterator[InputStream]:
    """Open an input file; `on_bytes` is told the size of every block read from storage, in bytes.

    Raises:
        DataError: unreadable, or an archive that is cut short or damaged; names the file. Raised by
            reading from the stream too.
    """
    stream = InputStream(file, on_bytes)
    try:
        yield stream
    finally:
        stream.close()


class _CountedFile(io.RawIOBase):
    """A file, or a span of it, that counts and hashes what is read from it."""

    def __init__(self, file: InputFile, on_bytes: Callable[[int], None] | None) -> None:
        super().__init__()
        self._path = file.path
        self._file = open_binary(file.path, file.storage_options)
        self._left = None
        if file.span is not None:
            self._file.seek(file.span[0])
            self._left = file.span[1] - file.span[0]
        self._on_bytes = on_bytes
        self.num_bytes = 0
        self.num_newlines = 0
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer)
        if self._left is not None:
            view = view[: self._left]
        count = self._read(view) if len(view) else 0
        if count:
            self.num_bytes += count
            if self._left is not None:
                self._left -= count
                self.num_newlines += bytes(view[:count]).count(b"\n")
            self.sha256.update(view[:count])
            if self._on_bytes is not None:
                self._on_bytes(count)
        return count

    def mtime_ns(self) -> int:
        return os.fstat(self._file.fileno()).st_mtime_ns

    def close(self) -> None:
        self._file.close()
        super().close()

    def _read(self, view: memoryview) -> int:
        try:
            if not is_remote(self._path):
                return self._file.readinto(view) or 0  # type: ignore[attr-defined]
            data = self._file.read(len(view))
        except Exception as error:  # what a remote store raises is its own
            raise DataError(f"{self._path} cannot be read further: {said(error)}") from error
        view[: len(data)] = data
        return len(data)
