"""A .json file: one record, an array of records, or records one after the other; of any size."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO

from data_prep.errors import DataError
from data_prep.read.documents import BAD_JSON, MAX_RECORD_BYTES, Row, Skipped
from data_prep.read.formats.plain import row_of_json
from data_prep.read.input_file import InputFile

_BLOCK_BYTES = 1 << 16
_NO_SPACE = re.compile(rb"[^ \t\r\n]")
# A whole string, a bracket, or a quote whose string has not ended yet. Nothing is tried twice, so a
# string of 100 MB takes no memory of the matcher's.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]|"', re.DOTALL)
_SCALAR = re.compile(rb"[-+.\w]+")


def read_json(stream: BinaryIO, file: InputFile) -> Iterator[Row | Skipped]:
    """A record an element, numbered from 1; only one element is in memory at a time.

    A file that is one record and no JSON is a bad record; an array that breaks off is an error,
    because nobody can tell how many records are lost.
    """
    text = _Text(stream)
    is_array = text.take(b"[")
    number = 0
    while (first := text.peek()) and not (is_array and first == b"]"):
        number += 1
        try:
            element = text.element()
            if is_array and not text.take(b",") and text.peek() != b"]":
                raise _UnsoundError("no comma follows")
        except _UnsoundError as error:
            if not is_array and number == 1:
                yield Skipped(number, BAD_JSON, str(error))
                return
            raise DataError(
                f"{file.path} is not sound JSON: {error} in record {number}, and what lies behind it cannot be "
                "read. Copy it anew, or mend it"
            ) from None
        yield row_of_json(element, number)
    if is_array and not text.take(b"]"):
        raise DataError(f"{file.path} is cut short: its JSON array does not end. Copy it anew")
    if is_array and text.peek():
        raise DataError(f"{file.path} is not sound JSON: something follows its array. Mend it")


class _UnsoundError(Exception):
    """The elements of a file cannot be told apart any more."""


class _Text:
    """The bytes of a JSON file, taken from the front."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._data = b""
        self._at = 0
        self._more()
        if self._data.startswith(codecs.BOM_UTF8):
            self._at = len(codecs.BOM_UTF8)

    def peek(self) -> bytes:
        """The next byte that is no white space, or nothing at the end."""
        while (match := _NO_SPACE.search(self._data, self._at)) is None:
            self._at = len(self._data)
            if not self._more():
                return b""
        self._at = match.start()
        return match[0]

    def take(self, byte: bytes) -> bool:
        """Step over the next byte if it is this one."""
        if self.peek() != byte:
            return False
        self._at += 1
        return True

    def element(self) -> bytes:
        """The next value, whole."""
        first = self.peek()
        length = self._nested_length() if first in b'{["' else self._scalar_length()
        element = self._data[self._at : self._at + length]
        self._at += length
        return element

    def _nested_length(self) -> int:
        depth = length = 0
        while True:
            match = _TOKEN.search(self._data, self._at + length)
            if match is None or match[0] == b'"':  # the rest has no token, or half a string
                length = (len(self._data) if match is None else match.start()) - self._at
                if not self._more():
                    raise _UnsoundError("a value does not end")
                continue
            length = match.end() - self._at
            depth += (match[0] in b"{[") - (match[0] in b"}]")
            if depth == 0:
                return length

    def _scalar_length(self) -> int:
        while True:
            match = _SCALAR.match(self._data, self._at)
            if match is None:
                raise _UnsoundError(f"{self._data[self._at : self._at + 1]!r} begins no value")
            if match.end() < len(self._data) or not self._more():
                return len(match[0])

    def _more(self) -> bool:
        """Read on; twice as much each time, so that a long value is looked through a few times only."""
        kept = self._data[self._at :]
        if len(kept) > MAX_RECORD_BYTES:
            raise _UnsoundError(f"a value is longer than {MAX_RECORD_BYTES} bytes")
        block = self._stream.read(max(_BLOCK_BYTES, len(kept)))
        self._data, self._at = kept + block, 0
        return bool(block)
