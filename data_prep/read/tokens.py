"""Records that are tokenized already: one row of token ids -> the documents in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from data_prep.read.documents import (
    BAD_BOUNDARIES,
    BAD_MASK,
    BAD_TOKENS,
    EMPTY,
    OUTSIDE,
    Row,
    Skipped,
    TokenDocument,
    unfit,
)
from data_prep.read.source import Source


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
        ValueError, TypeError, OverflowError: it is none: rounding would move a document's border.
    """
    whole = int(value)
    if whole != value:
        raise ValueError(f"{value!r} is no integer")
    return whole


def _span(item: Any) -> tuple[Any, Any]:
    """An end alone, a pair of start and end, or an object with `end` and perhaps `start`."""
    if isinstance(item, Mapping):
        return item.get("start"), item["end"]
    if isinstance(item, list | tuple | np.ndarray):
        begin, end = item
        return begin, end
    return None, item
