"""CSV: rows of several lines, and rows that are none."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.errors import DataError
from data_prep.read.documents import Row, Skipped
from data_prep.read.formats.csv_file import read_csv
from data_prep.read.input_file import InputFile
from tests.data_prep.read.reading import read, skipped, texts

_TEXT = st.text(st.characters(codec="utf-8"))


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
    with pytest.raises(DataError, match=r"a\.csv: its first line is no CSV header"):
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
