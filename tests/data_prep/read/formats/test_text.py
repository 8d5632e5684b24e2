"""JSON and CSV files, well formed and not."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.errors import DataError
from data_prep.read.documents import Row, Skipped
from data_prep.read.formats import text as text_formats
from data_prep.read.formats.text import read_csv
from data_prep.read.source import InputFile
from tests.data_prep.read.reading import dumps, read, skipped, texts

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_RECORDS = st.lists(st.dictionaries(st.text(), _VALUES))
_TEXT = st.text(st.characters(codec="utf-8"))


@given(_RECORDS, st.sampled_from(["array", "lines", "pretty"]), st.integers(1, 40))
def test_records_come_back_whatever_the_layout_and_the_blocks(records: list[dict], layout: str, block: int) -> None:
    parts = [json.dumps(record, ensure_ascii=False, indent=2 if layout == "pretty" else None) for record in records]
    text = f" [ {' , '.join(parts)} ]\n" if layout == "array" else "\n".join(parts)
    data = text.encode("utf-8", "surrogatepass")
    file = InputFile(0, "a.json", "a.json", "json", len(data), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_formats, "_JSON_BLOCK_BYTES", block)
        found = list(text_formats.read_json(io.BytesIO(data), file))
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
    monkeypatch.setattr(text_formats, "MAX_RECORD_BYTES", 1 << 20)
    (tmp_path / "a.json").write_bytes(b'[{"text": "' + b"x" * (4 << 20))
    with pytest.raises(DataError, match="a value is longer than 1048576 bytes in record 1"):
        read(tmp_path)


@given(st.lists(st.tuples(_TEXT, _TEXT)))
def test_rows_come_back_as_the_csv_module_writes_them(rows: list[tuple[str, str]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["text", "id"])
    writer.writerows(rows)
    data = text.getvalue().encode()
    found = list(read_csv(io.BytesIO(data), InputFile(0, "a.csv", "a.csv", "csv", len(data), 0)))
    assert [(row.fields["text"], row.fields["id"]) for row in found if isinstance(row, Row)] == rows


def test_lines_are_those_where_rows_begin(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfid,text\n1,"two\r\nlines"\n\n2,one line\n3,\n')
    records = read(tmp_path)
    assert texts(records) == ["two\r\nlines", "one line"]
    assert [record.line for record in records] == [2, 5, 6]
    assert skipped(records) == [(6, "empty document")]


def test_bad_rows_are_skipped_and_the_next_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'id,text\n1,a,b\n2\n3,"x"y\n4,caf\xe9\n5,fine\n6,"x\ny",z\n')
    records = read(tmp_path)
    assert texts(records) == ["fine"]
    assert skipped(records) == [(2, "bad CSV"), (3, "bad CSV"), (4, "bad CSV"), (5, "bad UTF-8"), (7, "bad CSV")]
    assert isinstance(records[-1], Skipped)
    assert records[-1].detail == "3 columns where the header has 2, lines 7 to 8"


def test_every_line_behind_a_quote_that_is_never_closed_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'id,text\n1,fine\n2,"never closed\n3,lost\n4,lost too\n')
    records = read(tmp_path)
    assert texts(records) == ["fine"]
    assert skipped(records) == [(3, "bad CSV"), (4, "bad CSV"), (5, "bad CSV")]
    assert isinstance(records[-1], Skipped)
    assert records[-1].detail == "in a quote that begins in line 3 and is never closed"


def test_another_text_field_and_where(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"lang,body\nen,a\nde,b\n")
    assert texts(read(tmp_path, text_field="body", where={"lang": "en"})) == ["a"]


def test_a_first_line_that_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'"a"b,c\n1,2\n')
    with pytest.raises(DataError, match=r"a\.csv: its first line is not a CSV header"):
        read(tmp_path)


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"")
    assert read(tmp_path) == []


def test_a_wanted_column_that_is_there_twice_is_refused_and_another_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,id,id\nx,1,2\n")
    assert texts(read(tmp_path)) == ["x"]
    (tmp_path / "a.csv").write_text("text,id,text\nx,1,y\n")
    with pytest.raises(DataError, match=r"a\.csv: its header has the column 'text' 2 times"):
        read(tmp_path)
