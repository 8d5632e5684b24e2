"""Formats that are lines or whole files: JSON lines, and plain text (Markdown, source code)."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

import orjson

from data_prep.read.documents import (
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
from data_prep.read.input_file import InputFile

_BLOCK_BYTES = 1 << 20


def read_jsonl(stream: BinaryIO, file: InputFile) -> Iterator[Row | Skipped]:
    """A record a line; blank lines are no records, and one of more than `MAX_RECORD_BYTES` is a bad one."""
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
