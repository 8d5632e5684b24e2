"""What reading gives: documents, and whatever is no document, named so that it can be counted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_prep.read.source import Source

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
    """One text, with where it stands: `line` is 1-based, 0 where the file is the document.

    Lines are counted from the begin of the `InputFile`, which may be a part of a file.
    """

    text: str
    utf8: bytes
    line: int


@dataclass(frozen=True, eq=False)
class TokenDocument:
    """One document that is tokenized already.

    Attributes:
        ids: token ids, int64 [tokens], as they were stored: perhaps with BOS or EOS.
        mask: which tokens are trained on, bool [tokens]; None where all are.
        line: as in `Document`.
    """

    ids: np.ndarray
    mask: np.ndarray | None
    line: int


@dataclass(frozen=True)
class Skipped:
    """A record that is no document: where, why, and what was found instead."""

    line: int
    reason: str
    detail: str = ""
    fields: tuple[str, ...] = ()


Record = Document | TokenDocument | Skipped


def record_of_fields(fields: Mapping[str, Any], line: int, source: Source) -> Document | Skipped:
    """The document in a record's text field, or why there is none."""
    if any(_as_text(fields.get(name)) != value for name, value in source.where.items()):
        return Skipped(line, FILTERED)
    if source.text_field not in fields:
        return Skipped(line, NO_TEXT_FIELD, f"fields: {list_fields(fields)}", tuple(fields))
    text = fields[source.text_field]
    if text is None:
        return Skipped(line, NULL_TEXT)
    if not isinstance(text, str):
        return Skipped(line, TEXT_NOT_A_STRING, f"a {type(text).__name__}")
    return document_of_text(text, line)


def document_of_text(text: str, line: int) -> Document | Skipped:
    """A document, unless the text is empty or cannot be UTF-8."""
    if not text or text.isspace():
        return Skipped(line, EMPTY)
    try:
        return Document(text, text.encode("utf-8"), line)
    except UnicodeEncodeError as error:  # a lone surrogate, escaped in the JSON
        return Skipped(line, BAD_UTF8, shorten(str(error)))


def list_fields(fields: Mapping[str, Any]) -> str:
    """Field names for a message, not too many."""
    names = list(fields)
    more = f" and {len(names) - _FIELDS_SHOWN} more" if len(names) > _FIELDS_SHOWN else ""
    return (", ".join(names[:_FIELDS_SHOWN]) or "none") + more


def shorten(text: str) -> str:
    """A detail for a message, not too long."""
    return text if len(text) <= _DETAIL_CHARACTERS else text[:_DETAIL_CHARACTERS] + "..."


def _as_text(value: Any) -> str | None:
    """A JSON value as `where` gives it: strings as they are, true, 3, 0.5; None where it has none."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)
