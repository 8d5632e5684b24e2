"""Records joined by the value of a field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.errors import DataError
from data_prep.read import Source, check_has_documents, find_files, groups, split_file
from data_prep.read.documents import Document, Row
from data_prep.read.groups import grouped_documents
from tests.data_prep.corpus import write_jsonl
from tests.data_prep.read.reading import read, skipped, texts


def test_rows_of_a_repository_make_one_document(tmp_path: Path) -> None:
    rows: list[Any] = [
        {"repo": "a", "text": "a1"},
        {"repo": "b", "text": "b1"},
        {"repo": None, "text": "alone"},
        {"repo": "a", "text": "a2"},
        {"repo": None, "text": "alone too"},
        {"text": "no repo"},
        {"repo": "b", "text": ""},
        {"repo": "a", "text": "a3"},
    ]
    write_jsonl(tmp_path / "x.jsonl", rows)
    records = read(tmp_path, group_by=("repo",), group_separator="|")
    assert texts(records) == ["a1|a2|a3", "b1", "alone", "alone too"]
    assert [record.line for record in records if isinstance(record, Document)] == [1, 2, 3, 5]
    assert skipped(records) == [(6, "no group field"), (7, "empty document")]


def test_groups_of_several_fields_and_of_other_types(tmp_path: Path) -> None:
    rows = [{"site": "x", "thread": 1, "text": "1"}, {"site": "y", "thread": 1, "text": "2"}]
    write_jsonl(tmp_path / "x.jsonl", [*rows, *rows])
    assert texts(read(tmp_path, group_by=("site", "thread"))) == ["1\n\n1", "2\n\n2"]
    assert texts(read(tmp_path, group_by=("thread",), group_separator="")) == ["1212"]


@given(st.lists(st.tuples(st.integers(0, 3) | st.none(), st.text("xyz\u00e9", min_size=1))))
def test_nothing_is_lost_and_no_group_is_torn(rows: list[tuple[int | None, str]]) -> None:
    source = Source("s", "unused", group_by=("key",), group_separator="|")
    items = [Row(line, {"key": key, "text": text}) for line, (key, text) in enumerate(rows, start=1)]
    found = [record.text for record in grouped_documents(iter(items), source) if isinstance(record, Document)]
    groups_of: dict[Any, list[str]] = {}
    for line, (key, text) in enumerate(rows):
        groups_of.setdefault(("alone", line) if key is None else key, []).append(text)
    assert found == ["|".join(parts) for parts in groups_of.values()]


def test_a_group_longer_than_memory_should_hold_goes_on_in_another_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MAX_GROUP_BYTES", 10)
    write_jsonl(tmp_path / "x.jsonl", [{"repo": "a", "text": text} for text in ("1234", "5678", "90", "x" * 30, "y")])
    assert texts(read(tmp_path, group_by=("repo",), group_separator="")) == ["1234567890", "x" * 30, "y"]


def test_a_field_that_no_record_has(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "x.jsonl", [{"repository": "a", "text": "x"}])
    source = Source("s", str(tmp_path), group_by=("repo",))
    with pytest.raises(
        DataError, match=r"no field 'repo' in any record\. Fields found: repository, text\. Set group_by"
    ):
        check_has_documents(source, find_files(source))


def test_files_of_groups_are_not_cut(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "x.jsonl", [{"repo": "a", "text": "x"}] * 50)
    source = Source("s", str(tmp_path), group_by=("repo",))
    (file,) = find_files(source)
    assert split_file(file, 10, source) == [file]
