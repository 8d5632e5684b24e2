"""JSON files: one record, an array, records in a row; and every way in which they break."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.errors import DataError
from data_prep.read.documents import Row
from data_prep.read.formats import json_file
from data_prep.read.input_file import InputFile
from tests.data_prep.read.reading import dumps, read, skipped, texts

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_RECORDS = st.lists(st.dictionaries(st.text(), _VALUES))


@given(_RECORDS, st.sampled_from(["array", "lines", "pretty"]), st.integers(1, 40))
def test_records_come_back_whatever_the_layout_and_the_blocks(records: list[dict], layout: str, block: int) -> None:
    parts = [json.dumps(record, ensure_ascii=False, indent=2 if layout == "pretty" else None) for record in records]
    text = f" [ {' , '.join(parts)} ]\n" if layout == "array" else "\n".join(parts)
    data = text.encode("utf-8", "surrogatepass")
    file = InputFile(0, "a.json", "a.json", "json", len(data), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_file, "_BLOCK_BYTES", block)
        found = list(json_file.read_json(io.BytesIO(data), file))
    assert [row.fields for row in found if isinstance(row, Row)] == [json.loads(json.dumps(item)) for item in records]
    assert [row.line for row in found] == list(range(1, len(records) + 1))


def test_one_record_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf" + dumps({"text": 'quotes " and \\ and {'}))
    assert texts(read(tmp_path)) == ['quotes " and \\ and {']


def test_bad_elements_are_skipped_with_their_number(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'[{"text": "a"}, 5, {"text": oops}, "b", null, {"text": "\xff"}, {"text": "c"}]')
    records = read(tmp_path)
    assert texts(records) == ["a", "c"]
    not_objects = [(number, "not a JSON object") for number in (2, 4, 5)]
    assert skipped(records) == sorted([*not_objects, (3, "bad JSON"), (6, "bad UTF-8")])


@pytest.mark.parametrize("data", [b"<html></html>", b'{"text": "cut', b"}", b'"cut', b"\xff\xfe"])
def test_a_file_that_is_no_json_is_one_bad_record(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json").write_bytes(data)
    assert skipped(read(tmp_path)) == [(1, "bad JSON")]


@pytest.mark.parametrize(
    "data",
    [
        b'[{"text": "a"}, {"text": "b',
        b'[{"text": "a"}, {"text": "b"}',
        b'[{"text": "a"},',
        b'[{"text": "a"} {"text": "b"}]',
        b'[{"text": "a"}] {"text": "b"}',
        b'{"text": "a"}, {"text": "b"}',
        b'[<a>, {"text": "b"}]',
    ],
)
def test_what_breaks_off_is_an_error_that_names_the_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(DataError, match=r"a\.json is (not sound JSON|cut short)"):
        read(tmp_path)


def test_an_empty_array_and_an_empty_file_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b" [ ] ")
    (tmp_path / "b.json").write_bytes(b"\n")
    assert read(tmp_path) == []


def test_a_value_that_never_ends_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "MAX_RECORD_BYTES", 1 << 20)
    (tmp_path / "a.json").write_bytes(b'[{"text": "' + b"x" * (4 << 20))
    with pytest.raises(DataError, match="a value is longer than 1048576 bytes in record 1"):
        read(tmp_path)
