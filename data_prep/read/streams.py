"""The bytes of an input file: unpacked where it is compressed, counted and hashed as they lie in storage."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from data_prep.errors import DataError
from data_prep.read.input_file import InputFile
from data_prep.read.storage import is_remote, open_binary, said
from data_prep.read.unpack import UnpackedFile, compression_of

_BUFFER_BYTES = 1 << 20


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
    """Open an input file; `on_bytes` is told of every block read from storage, in bytes.

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
            raise DataError(f"{self._path} cannot be read on: {said(error)}") from error
        view[: len(data)] = data
        return len(data)
