"""A .csv file with a header: a record a row, of one line or several."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator
from typing import BinaryIO

from data_prep.errors import DataError
from data_prep.read.documents import BAD_CSV, Row, Skipped, shorten
from data_prep.read.input_file import InputFile

# A quote that is never closed takes in the rest of a file; this bounds what it can cost in memory.
_MAX_FIELD_CHARACTERS = 1 << 28


def read_csv(stream: BinaryIO, file: InputFile, wanted: Collection[str] = ()) -> Iterator[Row | Skipped]:
    """Rows by the names in the first line; a row of another length is a bad one.

    Bytes that are no UTF-8 become lone surrogates, so that only the row they are in is bad. A quote
    that is never closed swallows all that is behind it: each of those lines is a bad record.

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
                raise DataError(f"{file.path}: its first line is no CSV header ({error})") from None
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
