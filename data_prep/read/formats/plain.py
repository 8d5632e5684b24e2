"""Formats that are lines or whole files: JSON lines, and plain text (Markdown, source code)."""

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
    Document,
    Row,
    Skipped,
    document_of_bytes,
    shorten,
)
from data_prep.read.input_file import InputFile


def read_jsonl(stream: BinaryIO, file: InputFile) -> Iterator[Row | Skipped]:
    """A record a line; blank lines are no records."""
    for number, line in enumerate(stream, start=1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.strip():
            yield row_of_json(line, number)


def read_text(stream: BinaryIO, file: InputFile) -> Iterator[Document | Skipped]:
    """The whole file is one document; line ends stay as they are."""
    yield document_of_bytes(stream.read().removeprefix(codecs.BOM_UTF8), 0)


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
