"""Compressed bytes -> plain bytes, with an error for every way in which an archive can be damaged."""

from __future__ import annotations

import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

import zstandard

from data_prep.errors import DataError

_BLOCK_BYTES = 1 << 17
# zstandard returns all that a block of input unpacks to at once. For 8 KiB that is at most 256 MiB, and
# for real text some tens of KiB.
_ZSTD_BLOCK_BYTES = 1 << 13
_ZSTD_WINDOW_BYTES = 1 << 31  # dumps of forums are written with `--long=31`
_OUTPUT_BYTES = 1 << 20


def _gzip() -> Any:
    return zlib.decompressobj(wbits=31)


def _zstd() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()


COMPRESSIONS: dict[str, tuple[str, Callable[[], Any]]] = {
    ".gz": ("gzip", _gzip),
    ".zst": ("zstd", _zstd),
    ".zstd": ("zstd", _zstd),
    ".xz": ("xz", lzma.LZMADecompressor),
}
"""By file name suffix: what the compression is called, and what unpacks one frame of it."""


def compression_of(path: str) -> str | None:
    """The ending of a compressed file's name, or None."""
    return next((suffix for suffix in COMPRESSIONS if path.lower().endswith(suffix)), None)


class UnpackedFile(io.RawIOBase):
    """The plain bytes of a compressed file of one or several frames.

    Args:
        file: the compressed bytes.
        path: names the file in errors.
        suffix: one of `COMPRESSIONS`.

    Raises:
        DataError: while reading, if the data are cut short, damaged or of another kind.
    """

    def __init__(self, file: BinaryIO, path: str, suffix: str) -> None:
        super().__init__()
        self._file = file
        self._path = path
        self._kind, self._new = COMPRESSIONS[suffix]
        self._is_bounded = self._kind != "zstd"
        self._frame = self._new()
        self._packed = b""
        self._plain = memoryview(b"")
        self._frame_begun = True  # an empty file is not an archive

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._plain:
            if not self._fill():
                return 0
        count = min(len(buffer), len(self._plain))
        buffer[:count] = self._plain[:count]
        self._plain = self._plain[count:]
        return count

    def _fill(self) -> bool:
        """Unpack something; False at the end of the file."""
        if self._frame.eof:
            self._packed = self._frame.unused_data
            self._frame, self._frame_begun = self._new(), False
        if not self._packed and not self._has_output():
            self._packed = self._file.read(_BLOCK_BYTES if self._is_bounded else _ZSTD_BLOCK_BYTES)
            if not self._packed:
                if self._frame_begun:
                    raise DataError(f"{self._path} is truncated: the {self._kind} data ends too early. Copy it again")
                return False
        if not self._frame_begun:
            self._packed = self._packed.lstrip(b"\0")  # padding after a frame
            if not self._packed:
                return True
        self._frame_begun = True
        packed, self._packed = self._packed, b""
        try:
            self._plain = memoryview(self._unpack(packed))
        except (zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
            raise DataError(f"{self._path} is not sound {self._kind} data ({error}). Copy it again") from error
        return True

    def _unpack(self, packed: bytes) -> bytes:
        if not self._is_bounded:
            return self._frame.decompress(packed)
        plain = self._frame.decompress(packed, _OUTPUT_BYTES)
        if self._kind == "gzip" and not self._frame.eof:
            self._packed = self._frame.unconsumed_tail
        return plain

    def _has_output(self) -> bool:
        """Whether the frame can give more without more input."""
        return self._kind == "xz" and self._frame_begun and not self._frame.needs_input
