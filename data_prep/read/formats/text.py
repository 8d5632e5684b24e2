"""Text formats, read from front to back: JSON lines, JSON, CSV, and plain text (Markdown, source code)."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Collection, Iterator
from functools import partial
from typing import BinaryIO

import orjson

from data_prep.errors import DataError
from data_prep.read.documents import (
    BAD_CSV,
    BAD_JSON,
    BAD_UTF8,
    MAX_RECORD_BYTES,
    NOT_AN_OBJECT,
    TOO_LONG,
    Document,
    Row,
    Skipped,
    document_of_bytes,
    shorten,
)
from data_prep.read.source import InputFile

_BLOCK_BYTES = 1 << 20
_JSON_BLOCK_BYTES = 1 << 16
_NO_SPACE = re.compile(rb"[^ \t\r\n]")
# A whole string, a bracket, or a quote whose string has not ended yet. Nothing is tried twice, so a
# string of 100 MB takes no memory of the matcher's.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]|"', re.DOTALL)
_SCALAR = re.compile(rb"[-+.\w]+")
# A quote that is never closed swallows the rest of a file; this bounds what it can cost in memory.
_MAX_FIELD_CHARACTERS = 1 << 28


def read_jsonl(stream: BinaryIO, file: InputFile) -> Iterator[Row | Skipped]:
    """A record per line; blank lines are skipped, and a line of more than `MAX_RECORD_BYTES` is a bad record."""
    longest = MAX_RECORD_BYTES
    for number, line in enumerate(iter(partial(stream.readline, longest + 1), b""), start=1):
        if len(line) > longest:
            while line and not line.endswith(b"\n"):
                line = stream.readline(_BLOCK_BYTES)
            yield Skipped(number, TOO_LONG, f"more than {longest} bytes")
            continue
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.strip():
            yield row_of_json(line, number)


def read_text(stream: BinaryIO, file: InputFile) -> Iterator[Document | Skipped]:
    """The whole file is one document, of at most `MAX_RECORD_BYTES`; line ends stay as they are."""
    text = stream.read(MAX_RECORD_BYTES + 1)
    if len(text) > MAX_RECORD_BYTES:
        yield Skipped(0, TOO_LONG, f"more than {MAX_RECORD_BYTES} bytes")
    else:
        yield document_of_bytes(text.removeprefix(codecs.BOM_UTF8), 0)


def row_of_json(data: bytes, number: int) -> Row | Skipped:
    """The record that these bytes spell in JSON; `number` is its line, or its place in the file."""
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            fields = json.loads(data.decode("utf-8"))  # takes what orjson does not: NaN, deep nesting
        except UnicodeDecodeError as error:
            return Skipped(number, BAD_UTF8, shorten(str(error)))
        except (ValueError, RecursionError) as error:
            return Skipped(number, BAD_JSON, shorten(str(error)))
    if not isinstance(fields, dict):
        return Skipped(number, NOT_AN_OBJECT, shorten(f"a {type(fields).__name__}"))
    return Row(number, fields)


def read_json(stream: BinaryIO, file: InputFile) -> Iterator[Row | Skipped]:
    """A record per element, numbered from 1; only one element is in memory at a time.

    A file whose one record is not JSON is a bad record; an array that breaks off is an error,
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
                f"{file.path} is not sound JSON: {error} in record {number}, and what follows it cannot be "
                "read. Copy it again, or fix it"
            ) from None
        yield row_of_json(element, number)
    if is_array and not text.take(b"]"):
        raise DataError(f"{file.path} is cut short: its JSON array does not end. Copy it again")
    if is_array and text.peek():
        raise DataError(f"{file.path} is not sound JSON: something follows its array. Fix it")


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
        """The next byte that is not white space, or nothing at the end."""
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
        block = self._stream.read(max(_JSON_BLOCK_BYTES, len(kept)))
        self._data, self._at = kept + block, 0
        return bool(block)


def read_csv(stream: BinaryIO, file: InputFile, wanted: Collection[str] = ()) -> Iterator[Row | Skipped]:
    """Rows by the names in the first line; a row of another length is a bad one.

    Bytes that are not UTF-8 become lone surrogates, so that only the row they are in is bad. A quote
    that is never closed swallows all that follows: each of those lines is a bad record.

    Args:
        wanted: columns of which there must not be two; of others the last is read.

    Raises:
        DataError: no header, or one that has a wanted column twice.
    """
    csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    is_at_end = False

    def lines() -> Iterator[str]:
        nonlocal is_at_end
        yield from text
        is_at_end = True

    rows = csv.reader(lines(), strict=True)
    header: list[str] | None = None
    line = 1
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            if header is None:
                raise DataError(f"{file.path}: its first line is not a CSV header ({error})") from None
            if is_at_end:
                detail = f"in a quote that begins in line {line} and is never closed"
                yield from (Skipped(number, BAD_CSV, detail) for number in range(line, rows.line_num + 1))
            else:
                yield Skipped(line, BAD_CSV, shorten(str(error)) + _lines(line, rows.line_num))
            row = []
        if row is None:
            break
        if header is None:
            header = row or None
            if twice := [name for name in wanted if row.count(name) > 1]:
                raise DataError(
                    f"{file.path}: its header has the column {twice[0]!r} {row.count(twice[0])} times, and only one "
                    "can be meant: rename the others"
                )
        elif row and len(row) != len(header):
            found = f"{len(row)} columns where the header has {len(header)}"
            yield Skipped(line, BAD_CSV, found + _lines(line, rows.line_num))
        elif row:
            yield Row(line, dict(zip(header, row, strict=True)))
        line = rows.line_num + 1
    text.detach()  # the stream is closed by who opened it


def _lines(first: int, last: int) -> str:
    """What is added to a bad row of several lines, among which others may have been swallowed by a stray quote."""
    return f", lines {first} to {last}" if last > first else ""
