"""Any input file -> its records: `open_records`, and what is said where no file has a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO

from data_prep.errors import DataError
from data_prep.read.documents import NO_TEXT_FIELD, Record, Skipped, list_fields
from data_prep.read.files import InputFile
from data_prep.read.plain import read_jsonl, read_text
from data_prep.read.source import Source
from data_prep.read.streams import open_stream

READERS: Mapping[str, Callable[[BinaryIO, Source], Iterator[Record]]] = {"jsonl": read_jsonl, "text": read_text}
"""How each format that is read from front to back becomes records."""


class Records:
    """The records of one open input file, in an order that is always the same."""

    def __init__(self, records: Iterator[Record], finish: Callable[[], str], num_lines: Callable[[], int]) -> None:
        self._records = records
        self._finish = finish
        self._num_lines = num_lines

    def __iter__(self) -> Iterator[Record]:
        return self._records

    @property
    def num_lines(self) -> int:
        """Lines read so far: after `finish`, those of the part, by which lines of the next part are behind."""
        return self._num_lines()

    def finish(self) -> str:
        """What identifies the content that was read: `content_hash` of the file.

        Raises:
            DataError: the file is not as long as it was when it was found.
        """
        return self._finish()


@contextmanager
def open_records(file: InputFile, source: Source, on_bytes: Callable[[int], None] | None = None) -> Iterator[Records]:
    """Open an input file, or the part of one that its span says, for its records.

    Args:
        on_bytes: told of every block read, in bytes as they lie on the disk.

    Raises:
        DataError: unreadable, cut short or damaged; names the file. Reading on may raise it too.
    """
    with open_stream(file, on_bytes) as stream:
        yield Records(READERS[file.format](stream.file, source), stream.finish, lambda: stream.num_newlines)


def content_hash(file: InputFile) -> str:
    """SHA-256 of the bytes of a file, or of the part of it that its span says."""
    with open_stream(file) as stream:
        return stream.finish()


def check_has_documents(source: Source, files: list[InputFile]) -> None:
    """Read up to the first document, so that a wrong option costs seconds and no hours.

    Raises:
        DataError: no file holds a document; says what the records are instead.
    """
    reasons: dict[str, int] = {}
    fields: dict[str, None] = {}
    for file in files:
        with open_records(file, source) as records:
            for record in records:
                if not isinstance(record, Skipped):
                    return
                reasons[record.reason] = reasons.get(record.reason, 0) + 1
                fields.update(dict.fromkeys(record.fields))
    where = f"source {source.name}: {source.path}"
    if not reasons:
        raise DataError(f"{where} is empty: its {len(files)} file(s) hold no records")
    if set(reasons) == {NO_TEXT_FIELD}:
        raise DataError(
            f"{where} has no field {source.text_field!r} in any record. Fields found: "
            f"{list_fields(fields)}. Set text_field to the one that holds the text"
        )
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    found = f". Fields found: {list_fields(fields)}" if fields else ""
    raise DataError(f"{where} holds no document; its records: {counts}{found}")
