"""Rows of token ids: boundaries, masks, and rows that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.read import Source, TokenDocument
from data_prep.read.documents import Row
from data_prep.read.tokens import documents_of_tokens
from tests.data_prep.corpus import write_jsonl
from tests.data_prep.read.reading import read, skipped, tokens

_SOURCE = Source("s", "unused", token_field="ids", mask_field="mask", boundary_field="ends")


def _documents(ids: Any, mask: Any, ends: Any) -> list[Any]:
    return list(documents_of_tokens(Row(7, {"ids": ids, "mask": mask, "ends": ends}), _SOURCE))


@pytest.mark.parametrize(
    "ends",
    [
        [2, 5],
        [[0, 2], [2, 5]],
        [{"end": 2}, {"end": 5, "start": 2}],
        np.array([2, 5], np.uint32),
        np.array([[0, 2], [2, 5]]),
        [2.0, 5.0],
        np.array([2, 5], np.float32),
        [[0.0, 2.0], [2, 5]],
    ],
)
def test_boundaries_in_every_form(ends: Any) -> None:
    first, second = _documents([1, 2, 3, 4, 5], [0, 1, 1, 1, 0], ends)
    assert (first.ids.tolist(), second.ids.tolist()) == ([1, 2], [3, 4, 5])
    assert (first.mask.tolist(), second.mask.tolist()) == ([False, True], [True, True, False])
    assert (first.line, second.line) == (7, 7)


def test_tokens_between_documents_are_counted() -> None:
    found = _documents([1, 2, 3, 4, 5], [1] * 5, [[1, 2], [3, 4]])
    assert [record.ids.tolist() for record in found if isinstance(record, TokenDocument)] == [[2], [4]]
    assert [(record.reason, record.detail) for record in found if not isinstance(record, TokenDocument)] == [
        ("tokens outside of every document", "1 tokens")
    ] * 3


def test_empty_documents_between_boundaries_and_no_boundaries() -> None:
    assert len(_documents([1, 2], [1, 1], [0, 2, 2])) == 1
    assert [record.reason for record in _documents([], [], [])] == ["empty document"]


@pytest.mark.parametrize(
    ("ids", "mask", "ends", "reason"),
    [
        (None, [], [], "tokens are not a list of ids"),
        ("12", [], [], "tokens are not a list of ids"),
        ([1.5], [1], [1], "tokens are not a list of ids"),
        ([1, None], [1, 1], [2], "tokens are not a list of ids"),
        ([[1], [2, 3]], [1], [2], "tokens are not a list of ids"),
        ([-1], [1], [1], "tokens are not a list of ids"),
        ([1 << 64], [1], [1], "tokens are not a list of ids"),
        ([1, 2], [1], [2], "mask does not fit the tokens"),
        ([1, 2], [1, 2], [2], "mask does not fit the tokens"),
        ([1, 2], None, [2], "mask does not fit the tokens"),
        ([1, 2], [1, 1], [3], "boundaries do not fit the tokens"),
        ([1, 2], [1, 1], [2, 1], "boundaries do not fit the tokens"),
        ([1, 2], [1, 1], [[1, 0]], "boundaries do not fit the tokens"),
        ([1, 2], [1, 1], [{"start": 0}], "boundaries do not fit the tokens"),
        ([1, 2], [1, 1], ["x"], "boundaries do not fit the tokens"),
        ([1, 2], [1, 1], ["2"], "boundaries do not fit the tokens"),
        ([1, 2], [1, 1], [1.5, 2], "boundaries do not fit the tokens"),
        ([1, 2], [1, 1], [[0.5, 2]], "boundaries do not fit the tokens"),
        ([1, 2], [1, 1], [{"start": 0, "end": 1.9}], "boundaries do not fit the tokens"),
        ([1, 2], [1, 1], [float("nan")], "boundaries do not fit the tokens"),
        ([1, 2], [1, 1], [float("inf")], "boundaries do not fit the tokens"),
        ([1, 2], [1, 1], np.array([1.5, 2.0]), "boundaries do not fit the tokens"),
        ([1, 2], [1, 1], None, "boundaries do not fit the tokens"),
    ],
)
def test_rows_that_are_no_documents(ids: Any, mask: Any, ends: Any, reason: str) -> None:
    (record,) = _documents(ids, mask, ends)
    assert (record.reason, record.line) == (reason, 7)


def test_rows_of_json_lines(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"input_ids": [1, 2]}, {"text": "x"}, {"input_ids": [3]}])
    records = read(tmp_path, token_field="input_ids")
    assert tokens(records) == [[1, 2], [3]]
    assert skipped(records) == [(2, "no token field")]
