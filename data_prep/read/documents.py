"""Records -> documents, of text or of tokens; whatever is not a document is named, so that it can be counted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_prep.errors import DataError
from data_prep.read.source import Source

BAD_JSON = "bad JSON"
BAD_CSV = "bad CSV"
BAD_UTF8 = "bad UTF-8"
NULS = "full of NUL"
NOT_AN_OBJECT = "not a JSON object"
NO_TEXT_FIELD = "no text field"
NO_TOKEN_FIELD = "no token field"
NO_GROUP_FIELD = "no group field"
NULL_TEXT = "text is null"
TEXT_NOT_A_STRING = "text is not a string"
BAD_TOKENS = "tokens are not a list of ids"
BAD_MASK = "mask does not fit the tokens"
BAD_BOUNDARIES = "boundaries do not fit the tokens"
OUTSIDE = "tokens outside of every document"
TOO_LONG = "longer than a record may be"
EMPTY = "empty document"
FILTERED = "left out by where"

MAX_RECORD_BYTES = 1 << 30
"""A longer line or text is not a document: a file without line ends must not fill the memory."""

_FINE = (EMPTY, FILTERED)
_TOLERATED = 100
_DETAIL_CHARACTERS = 200
# Of a text that is one; a stray NUL is left to the tokenizer.
_NUL_SHARE = 0.1
_FIELDS_SHOWN = 20


@dataclass(frozen=True)
class Document:
    """One text and its place: `line` is 1-based, 0 if the file is the document.

    Lines are counted from the beginning of the `InputFile`, which may be a part of a file. In formats
    without lines they are records.
    """

    text: str
    utf8: bytes
    line: int


@dataclass(frozen=True, eq=False)
class TokenDocument:
    """One document that comes tokenized.

    Attributes:
        ids: token ids, int64 [tokens], as they were stored, perhaps with BOS or EOS.
        mask: which tokens are trained on, bool [tokens]; None if all are.
        line: as in `Document`.
    """

    ids: np.ndarray
    mask: np.ndarray | None
    line: int


@dataclass(frozen=True)
class Skipped:
    """A record that is not a document: where, why, and what was found instead."""

    line: int
    reason: str
    detail: str = ""
    fields: tuple[str, ...] = ()

    @property
    def is_bad(self) -> bool:
        """Whether something is wrong with it: not if it is only empty, or left out by the user."""
        return self.reason not in _FINE


@dataclass(frozen=True, slots=True)
class Row:
    """A record as its format gives it: field names and values. Text may be bytes of UTF-8."""

    line: int
    fields: Mapping[str, Any]


Record = Document | TokenDocument | Skipped


def check_bad(source: Source, num_documents: int, skipped: Mapping[str, int], share: float = 1.0) -> None:
    """Refuse a source with too many bad records.

    Args:
        num_documents: documents so far.
        skipped: records that were not documents, by reason.
        share: of the source that has been read. In a part, only what is too much for the whole is
            refused: which part is read first depends on the number of workers.

    Raises:
        DataError: more than a hundred bad records, and more than `source.max_bad_fraction` of all.
    """
    bad = {reason: count for reason, count in skipped.items() if reason not in _FINE}
    num_bad, num_records = sum(bad.values()), num_documents + sum(skipped.values())
    if num_bad > _TOLERATED and num_bad > source.max_bad_fraction * num_records / share:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in bad.items())
        raise DataError(
            f"source {source.name}: {num_bad:,} of {num_records:,} records are bad ({reasons}), more than "
            f"max_bad_fraction={source.max_bad_fraction:g}. Fix them, or raise data.sources.{source.name}."
            "max_bad_fraction to continue without them"
        )


def document_of_row(row: Row, source: Source) -> Document | Skipped:
    """The document in a record's text field, or why there is none."""
    if (skipped := unfit(row, source)) is not None:
        return skipped
    text = row.fields[source.text_field]
    if text is None:
        return Skipped(row.line, NULL_TEXT)
    if isinstance(text, bytes):
        return document_of_bytes(text, row.line)
    if not isinstance(text, str):
        return Skipped(row.line, TEXT_NOT_A_STRING, f"a {type(text).__name__}")
    if not text or text.isspace():
        return Skipped(row.line, EMPTY)
    try:
        utf8 = text.encode("utf-8")
    except UnicodeEncodeError as error:  # a lone surrogate, escaped in the JSON
        return Skipped(row.line, BAD_UTF8, shorten(str(error)))
    return _full_of_nul(utf8, row.line) or Document(text, utf8, row.line)


def document_of_bytes(data: bytes, line: int) -> Document | Skipped:
    """A document, unless its text is empty or not UTF-8."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Skipped(line, BAD_UTF8, shorten(str(error)))
    if not text or text.isspace():
        return Skipped(line, EMPTY)
    return _full_of_nul(data, line) or Document(text, data, line)


def _full_of_nul(utf8: bytes, line: int) -> Skipped | None:
    """Refuse UTF-16 without its mark, and binary data, which are UTF-8 by chance."""
    count = utf8.count(0)
    if count <= _NUL_SHARE * len(utf8):
        return None
    return Skipped(line, NULS, f"{count} of {len(utf8)} bytes: UTF-16, or no text")


def unfit(row: Row, source: Source) -> Skipped | None:
    """Why a record is not considered, whatever its document says: filtered, or without a field it needs."""
    if any(as_text(row.fields.get(name)) != value for name, value in source.where.items()):
        return Skipped(row.line, FILTERED)
    main, reason = source.text_field, NO_TEXT_FIELD
    if source.token_field is not None:
        main, reason = source.token_field, NO_TOKEN_FIELD
    if main not in row.fields:
        return lacking(row.line, reason, row.fields)
    if not all(name in row.fields for name in source.group_by):
        return lacking(row.line, NO_GROUP_FIELD, row.fields)
    return None


def lacking(line: int, reason: str, fields: Mapping[str, Any]) -> Skipped:
    """A record without a field that it needs, with those it has."""
    return Skipped(line, reason, f"fields: {list_fields(fields)}", tuple(fields))


def as_text(value: Any) -> str | None:
    """A value as `where` writes it: strings as they are, true, 3, 0.5; None if there is none."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return json.dumps(value, default=str)


def list_fields(fields: Mapping[str, Any]) -> str:
    """Field names for a message, not too many."""
    names = list(fields)
    more = f" and {len(names) - _FIELDS_SHOWN} more" if len(names) > _FIELDS_SHOWN else ""
    return (", ".join(names[:_FIELDS_SHOWN]) or "none") + more


def shorten(text: str) -> str:
    """A detail for a message, not too long."""
    return text if len(text) <= _DETAIL_CHARACTERS else text[:_DETAIL_CHARACTERS] + "..."


def stop_at_bad(records: Iterator[Record], path: str) -> Iterator[Record]:
    """Pass records on up to the first bad one, which ends reading."""
    for record in records:
        if isinstance(record, Skipped) and record.is_bad:
            where = f"{path}:{record.line}" if record.line else path
            detail = f" ({record.detail})" if record.detail else ""
            raise DataError(f"{where}: {record.reason}{detail}. Fix it, or set strict=false to skip such records")
        yield record


def documents_of_tokens(row: Row, source: Source) -> Iterator[TokenDocument | Skipped]:
    """The documents in a row's tokens; tokens between them are counted as skipped."""
    if (skipped := unfit(row, source)) is not None:
        yield skipped
        return
    ids = _integers(row.fields[source.token_field or ""])
    if ids is None or (len(ids) and ids.min() < 0):
        yield Skipped(row.line, BAD_TOKENS)
        return
    mask = None
    if source.mask_field is not None:
        mask = _integers(row.fields.get(source.mask_field))
        if mask is None or len(mask) != len(ids) or not np.isin(mask, (0, 1)).all():
            yield Skipped(row.line, BAD_MASK, f"field {source.mask_field}")
            return
        mask = mask.astype(bool)
    spans = np.array([[0, len(ids)]])
    if source.boundary_field is not None:
        found = _spans(row.fields.get(source.boundary_field), len(ids))
        if found is None:
            yield Skipped(row.line, BAD_BOUNDARIES, f"field {source.boundary_field}, {len(ids)} tokens")
            return
        spans = found
    yield from _cut(ids, mask, spans, row.line)


def _cut(ids: np.ndarray, mask: np.ndarray | None, spans: np.ndarray, line: int) -> Iterator[TokenDocument | Skipped]:
    done = 0
    for begin, end in [*spans.tolist(), [len(ids), len(ids)]]:
        if begin > done:
            yield Skipped(line, OUTSIDE, f"{begin - done} tokens")
        if end > begin:
            yield TokenDocument(ids[begin:end], None if mask is None else mask[begin:end], line)
        done = end
    if not len(ids):
        yield Skipped(line, EMPTY)


def _integers(value: Any) -> np.ndarray | None:
    """A list of integers (or of true and false) as int64 [n]; None if it is something else."""
    if not isinstance(value, list | np.ndarray):
        return None
    try:
        array = np.asarray(value) if len(value) else np.empty(0, np.int64)
        if array.ndim != 1 or array.dtype.kind not in "iub" or (array.dtype.kind == "u" and array.max() >= 1 << 63):
            return None
    except (ValueError, OverflowError):  # ragged, or beyond any integer
        return None
    return array.astype(np.int64)


def _spans(value: Any, num_tokens: int) -> np.ndarray | None:
    """Begin and end of each document, int64 [documents, 2]; None where they do not fit the tokens."""
    if not isinstance(value, list | np.ndarray):
        return None
    try:
        items = [(None if begin is None else _whole(begin), _whole(end)) for begin, end in map(_span, value)]
        ends = np.array([end for _, end in items], dtype=np.int64)
        previous = np.concatenate([[0], ends])[: len(ends)]
        begins = [before if begin is None else begin for (begin, _), before in zip(items, previous, strict=True)]
        spans = np.stack([np.array(begins, dtype=np.int64), ends], axis=1)
    except (TypeError, ValueError, KeyError, OverflowError):
        return None
    fits = (spans[:, 0] >= previous).all() and (spans[:, 1] >= spans[:, 0]).all()
    return spans if fits and (not len(ends) or ends[-1] <= num_tokens) else None


def _whole(value: Any) -> int:
    """An integer, also where it is written as a float.

    Raises:
        ValueError, TypeError, OverflowError: it is not an integer: rounding would move the boundary of a document.
    """
    whole = int(value)
    if whole != value:
        raise ValueError(f"{value!r} is not an integer")
    return whole


def _span(item: Any) -> tuple[Any, Any]:
    """An end alone, a pair of start and end, or an object with `end` and perhaps `start`."""
    if isinstance(item, Mapping):
        return item.get("start"), item["end"]
    if isinstance(item, list | tuple | np.ndarray):
        begin, end = item
        return begin, end
    return None, item
