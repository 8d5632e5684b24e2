"""The bytes of an input file: unpacked where it is gzipped, counted and hashed as they lie on disk."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from data_prep.errors import DataError
from data_prep.read.files import InputFile

_BUFFER_BYTES = 1 << 20


class InputStream:
    """An open input file, or the part of it that its span says.

    Attributes:
        file: its bytes, unpacked.
        num_bytes: bytes read from the disk so far.
    """

    def __init__(self, file: InputFile, on_bytes: Callable[[int], None] | None) -> None:
        self._input = file
        self._raw = _CountedFile(file, on_bytes)
        buffered = io.BufferedReader(self._raw, _BUFFER_BYTES)
        if file.path.lower().endswith(".gz"):
            self.file = cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=buffered), _BUFFER_BYTES))
        else:
            self.file = cast(BinaryIO, buffered)
        self._buffered = buffered

    @property
    def num_bytes(self) -> int:
        return self._raw.num_bytes

    @property
    def num_newlines(self) -> int:
        """Line ends on the disk so far; counted where the file is read in parts."""
        return self._raw.num_newlines

    def finish(self) -> str:
        """Read what is left and give the SHA-256 of the bytes on disk.

        Raises:
            DataError: they are not as many as when the file was found.
        """
        while self._buffered.read(_BUFFER_BYTES):
            pass
        is_part = self._input.span is not None
        if self.num_bytes != self._input.num_bytes or (is_part and self._raw.mtime_ns() != self._input.mtime_ns):
            raise DataError(f"{self._input.path} changed while it was read: wait until it is whole and start again")
        return self._raw.sha256.hexdigest()

    def close(self) -> None:
        self._raw.close()


@contextmanager
def open_stream(file: InputFile, on_bytes: Callable[[int], None] | None = None) -> Iterator[InputStream]:
    """Open an input file; `on_bytes` is told of every block read from the disk, in bytes.

    Raises:
        DataError: unreadable, or gzip that is cut short or damaged; names the file. Raised for
            errors of reading inside the `with` block too.
    """
    try:
        stream = InputStream(file, on_bytes)
    except OSError as error:
        raise DataError(f"{file.path} cannot be read: {error.strerror}") from error
    try:
        yield stream
    except EOFError as error:
        raise DataError(f"{file.path} is truncated: the gzip data ends too early. Copy it anew") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{file.path} is not sound gzip data ({error}). Copy it anew") from error
    finally:
        stream.close()


class _CountedFile(io.RawIOBase):
    """A file, or a span of it, that counts and hashes what is read from it."""

    def __init__(self, file: InputFile, on_bytes: Callable[[int], None] | None) -> None:
        super().__init__()
        self._file = open(file.path, "rb", buffering=0)  # noqa: SIM115 - closed with this object
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
        count = (self._file.readinto(view) or 0) if len(view) else 0
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
