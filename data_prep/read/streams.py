"""The bytes of an input file: unpacked where it is gzipped, counted and hashed as they lie on disk."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from data_prep.errors import DataError
from data_prep.read.files import InputFile

_BUFFER_BYTES = 1 << 20


class InputStream:
    """An open input file.

    Attributes:
        file: its bytes, unpacked.
        num_bytes: bytes read from the disk so far.
    """

    def __init__(self, path: str, on_bytes: Callable[[int], None] | None) -> None:
        self._raw = _CountedFile(path, on_bytes)
        buffered = io.BufferedReader(self._raw, _BUFFER_BYTES)
        if path.lower().endswith(".gz"):
            self.file = cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=buffered), _BUFFER_BYTES))
        else:
            self.file = cast(BinaryIO, buffered)
        self._buffered = buffered

    @property
    def num_bytes(self) -> int:
        return self._raw.num_bytes

    def finish(self) -> str:
        """Read what is left and give the SHA-256 of the file on disk."""
        while self._buffered.read(_BUFFER_BYTES):
            pass
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
        stream = InputStream(file.path, on_bytes)
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
    """A file that counts and hashes what is read from it."""

    def __init__(self, path: str, on_bytes: Callable[[int], None] | None) -> None:
        super().__init__()
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed with this object
        self._on_bytes = on_bytes
        self.num_bytes = 0
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = self._file.readinto(buffer) or 0
        if count:
            self.num_bytes += count
            self.sha256.update(memoryview(buffer)[:count])
            if self._on_bytes is not None:
                self._on_bytes(count)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
