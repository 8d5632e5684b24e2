"""Documents out of open files, one reader a format; whatever is no document is named and counted."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from data_prep.errors import DataError
from data_prep.read.files import InputFile
from data_prep.read.source import Source
from data_prep.read.streams import open_stream

BAD_JSON = "bad JSON"
BAD_UTF8 = "bad UTF-8"
NOT_AN_OBJECT = "not a JSON object"
NO_TEXT_FIELD = "no text field"
NULL_TEXT = "text is null"
TEXT_NOT_A_STRING = "text is not a string"
EMPTY = "empty document"
FILTERED = "left out by where"

_DETAIL_CHARACTERS = 200
_FIELDS_SHOWN = 20


@dataclass(frozen=True)
class Document:
    """One text, with where it stands: `line` is 1-based, 0 where the file is the document."""

    text: str
    utf8: bytes
    line: int


@dataclass(frozen=True)
class Skipped:
    """A record that is no document: where, why, and what was found instead."""

    line: int
    reason: str
    detail: str = ""
    fields: tuple[str, ...] = ()


Record = Document | Skipped


def read_jsonl(file: BinaryIO, source: Source) -> Iterator[Record]:
    """A record a line; blank lines are no records."""
    for number, line in enumerate(file, start=1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.strip():
            yield _record_of_line(line, number, source)


def read_text(file: BinaryIO, source: Source) -> Iterator[Record]:
    """The whole file is one document; line ends stay as they are."""
    data = file.read().removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        yield Skipped(0, BAD_UTF8, _shorten(str(error)))
        return
    yield _document(text, 0)


READERS: Mapping[str, Callable[[BinaryIO, Source], Iterator[Record]]] = {"jsonl": read_jsonl, "text": read_text}


def check_has_documents(source: Source, files: list[InputFile]) -> None:
    """Read up to the first document, so that a wrong option costs seconds and no hours.

    Raises:
        DataError: no file holds a document; says what the records are instead.
    """
    reasons: dict[str, int] = {}
    fields: dict[str, None] = {}
    for file in files:
        with open_stream(file) as stream:
            for record in READERS[file.format](stream.file, source):
                if isinstance(record, Document):
                    return
                reasons[record.reason] = reasons.get(record.reason, 0) + 1
                fields.update(dict.fromkeys(record.fields))
    where = f"source {source.name}: {source.path}"
    if not reasons:
        raise DataError(f"{where} is empty: its {len(files)} file(s) hold no records")
    if set(reasons) == {NO_TEXT_FIELD}:
        raise DataError(
            f"{where} has no field {source.text_field!r} in any record. Fields found: "
            f"{_list_fields(fields)}. Set text_field to the one that holds the text"
        )
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    found = f". Fields found: {_list_fields(fields)}" if fields else ""
    raise DataError(f"{where} holds no document; its records: {counts}{found}")


def _record_of_line(line: bytes, number: int, source: Source) -> Record:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        try:
            record = json.loads(line.decode("utf-8"))  # takes what orjson does not: NaN, deep nesting
        except UnicodeDecodeError as error:
            return Skipped(number, BAD_UTF8, _shorten(str(error)))
        except (ValueError, RecursionError) as error:
            return Skipped(number, BAD_JSON, _shorten(str(error)))
    if not isinstance(record, dict):
        return Skipped(number, NOT_AN_OBJECT, _shorten(f"a {type(record).__name__}"))
    if any(_as_text(record.get(name)) != value for name, value in source.where.items()):
        return Skipped(number, FILTERED)
    if source.text_field not in record:
        return Skipped(number, NO_TEXT_FIELD, f"fields: {_list_fields(record)}", tuple(record))
    text = record[source.text_field]
    if text is None:
        return Skipped(number, NULL_TEXT)
    if not isinstance(text, str):
        return Skipped(number, TEXT_NOT_A_STRING, f"a {type(text).__name__}")
    return _document(text, number)


def _document(text: str, line: int) -> Record:
    if not text or text.isspace():
        return Skipped(line, EMPTY)
    try:
        return Document(text, text.encode("utf-8"), line)
    except UnicodeEncodeError as error:  # a lone surrogate, escaped in the JSON
        return Skipped(line, BAD_UTF8, _shorten(str(error)))


def _as_text(value: Any) -> str | None:
    """A JSON value as `where` gives it: strings as they are, true, 3, 0.5; None where it has none."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def _list_fields(fields: Mapping[str, Any]) -> str:
    names = list(fields)
    more = f" and {len(names) - _FIELDS_SHOWN} more" if len(names) > _FIELDS_SHOWN else ""
    return (", ".join(names[:_FIELDS_SHOWN]) or "none") + more


def _shorten(text: str) -> str:
    return text if len(text) <= _DETAIL_CHARACTERS else text[:_DETAIL_CHARACTERS] + "..."
