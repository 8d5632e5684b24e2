"""A .csv file with a header: a record a row, of one line or several."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import BinaryIO

from data_prep.errors import DataError
from data_prep.read.documents import BAD_CSV, Row, Skipped, shorten
from data_prep.read.input_file import InputFile

# A quote that is never closed takes in the rest of a file; this bounds what it can cost in memory.
_MAX_FIELD_CHARACTERS = 1 << 28
_NEVER_CLOSED = "unexpected end of data"  # as the csv module says it


def read_csv(stream: BinaryIO, file: InputFile) -> Iterator[Row | Skipped]:
    """Rows by the names in the first line; a row of another length is a bad one.

    Bytes that are no UTF-8 become lone surrogates, so that only the row they are in is bad. A quote
    that is never closed takes in the rest of the file, and nobody can tell how many rows are lost.
    """
    csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    rows = csv.reader(text, strict=True)
    header: list[str] | None = None
    line = 1
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            if header is None:
                raise DataError(f"{file.path}: its first line is no CSV header ({error})") from None
            if str(error) == _NEVER_CLOSED:
                raise DataError(
                    f"{file.path} is not sound CSV: a quote of the row that begins in line {line} is never closed, and "
                    "what lies behind it cannot be read. Copy it anew, or mend it"
                ) from None
            yield Skipped(line, BAD_CSV, shorten(str(error)))
            row = []
        if row is None:
            break
        if header is None:
            header = row or None
        elif row and len(row) != len(header):
            yield Skipped(line, BAD_CSV, f"{len(row)} columns where the header has {len(header)}")
        elif row:
            yield Row(line, dict(zip(header, row, strict=True)))
        line = rows.line_num + 1
    text.detach()  # the stream is closed by who opened it
