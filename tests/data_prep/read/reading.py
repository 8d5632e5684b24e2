"""Reads sources for the tests of readers, and packs bytes as archives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.read import (
    Document,
    Record,
    Skipped,
    Source,
    TokenDocument,
    content_hash,
    find_files,
    open_records,
    split_file,
)


def read(path: Path | str, unit_bytes: int | None = None, **options: Any) -> list[Record]:
    """Every record of a source, read in parts of `unit_bytes`, with what `Records` promises checked."""
    source = Source("s", str(path), **options)
    found: list[Record] = []
    for file in find_files(source):
        lines = 0
        for part in [file] if unit_bytes is None else split_file(file, unit_bytes, source):
            told: list[int] = []
            with open_records(part, source, told.append) as records:
                found += [replace(record, line=record.line + lines) for record in records]
                assert records.finish() == content_hash(part)
                lines += records.num_lines
            assert sum(told) == part.num_bytes
    return found


def texts(records: list[Record]) -> list[str]:
    """The documents' texts."""
    return [record.text for record in records if isinstance(record, Document)]


def tokens(records: list[Record]) -> list[list[int]]:
    """The token documents' ids."""
    for record in records:
        if isinstance(record, TokenDocument):
            assert record.ids.dtype == np.int64
            assert record.mask is None or record.mask.dtype == bool
    return [record.ids.tolist() for record in records if isinstance(record, TokenDocument)]


def skipped(records: list[Record]) -> list[tuple[int, str]]:
    """Line and reason of what was no document."""
    return [(record.line, record.reason) for record in records if isinstance(record, Skipped)]


def dumps(value: Any) -> bytes:
    return json.dumps(value).encode()
