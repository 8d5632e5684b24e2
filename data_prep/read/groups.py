"""Records of a file joined into documents by the value of a field: a repository, a thread."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator
from typing import IO

import numpy as np

from data_prep.read.documents import Document, Row, Skipped, as_text, document_of_row
from data_prep.read.source import Source

MAX_GROUP_BYTES = 64 << 20
"""A longer group is continued in another document: longer than any window, but bounded in memory."""


def grouped_documents(items: Iterator[Row | Skipped], source: Source) -> Iterator[Document | Skipped]:
    """Join all records of a file that are equal in `source.group_by`, in the order of the file.

    Groups are in the order of their first records; a record without a value is a document of its
    own. Skipped records come first. Texts wait in a temporary file, so that memory holds only the
    keys and 32 bytes per record.
    """
    numbers: dict[tuple[str | None, ...], int] = {}
    columns = {name: array("q") for name in ("group", "line", "begin", "end")}
    num_groups = 0
    with tempfile.TemporaryFile() as spool:
        for item in items:
            record = item if isinstance(item, Skipped) else document_of_row(item, source)
            if isinstance(record, Skipped) or isinstance(item, Skipped):
                yield record
                continue
            key = tuple(as_text(item.fields.get(name)) for name in source.group_by)
            number = num_groups if None in key else numbers.setdefault(key, num_groups)
            num_groups += number == num_groups
            begin = spool.tell()
            spool.write(record.utf8)
            for name, value in zip(columns, (number, record.line, begin, spool.tell()), strict=True):
                columns[name].append(value)
        yield from _joined(spool, {name: np.array(column) for name, column in columns.items()}, source)


def _joined(spool: IO[bytes], columns: dict[str, np.ndarray], source: Source) -> Iterator[Document]:
    separator = source.group_separator.encode("utf-8")
    order = np.argsort(columns["group"], kind="stable")
    texts: list[bytes] = []
    num_bytes = first_line = 0
    before = -1
    for group, line, begin, end in zip(*(columns[name][order].tolist() for name in columns), strict=True):
        if texts and (group != before or num_bytes + end - begin > MAX_GROUP_BYTES):
            yield _document(texts, separator, first_line)
            texts, num_bytes = [], 0
        if not texts:
            first_line = line
        before = group
        spool.seek(begin)
        texts.append(spool.read(end - begin))
        num_bytes += end - begin + len(separator)
    if texts:
        yield _document(texts, separator, first_line)


def _document(texts: list[bytes], separator: bytes, line: int) -> Document:
    utf8 = separator.join(texts)
    return Document(utf8.decode("utf-8"), utf8, line)
