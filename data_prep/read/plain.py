"""Formats that are read from front to back: JSON lines and plain text."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import BinaryIO

import orjson

from data_prep.read.documents import (
    BAD_JSON,
    BAD_UTF8,
    NOT_AN_OBJECT,
    Record,
    Skipped,
    document_of_text,
    record_of_fields,
    shorten,
)
from data_prep.read.source import Source


def read_jsonl(file: BinaryIO, source: Source) -> Iterator[Record]:
    """A record a line; blank lines are no records."""
    for number, line in enumerate(file, start=1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.strip():
            yield record_of_json(line, number, source)


def read_text(file: BinaryIO, source: Source) -> Iterator[Record]:
    """The whole file is one document; line ends stay as they are."""
    data = file.read().removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        yield Skipped(0, BAD_UTF8, shorten(str(error)))
        return
    yield document_of_text(text, 0)


def record_of_json(data: bytes, number: int, source: Source) -> Record:
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
    return record_of_fields(fields, number, source)
