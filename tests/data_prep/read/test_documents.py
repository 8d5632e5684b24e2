"""Records -> documents, of text or of tokens."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.errors import DataError
from data_prep.read import Document, InputFile, Record, Skipped, Source, TokenDocument, check_has_documents, find_files
from data_prep.read.documents import Row, documents_of_tokens
from data_prep.read.formats import text as text_formats
from data_prep.read.records import FROM_THE_FRONT, _one_by_one
from tests.data_prep.corpus import write_jsonl
from tests.data_prep.read.reading import read, skipped, tokens

_SOURCE = Source("s", "unused")
_TOKEN_SOURCE = Source("s", "unused", token_field="ids", mask_field="mask", boundary_field="ends")


def _read(data: bytes, kind: str = "jsonl", source: Source = _SOURCE) -> list[Record]:
    file = InputFile(0, "unused", "unused", kind, len(data), 0)
    return list(_one_by_one(FROM_THE_FRONT[kind](io.BytesIO(data), file), source))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "half', "bad JSON"),
        (b"not json", "bad JSON"),
        (b"[" * 100_000, "bad JSON"),
        (b'{"text": "\xff\xfe"}', "bad UTF-8"),
        (b'{"text": "\xed\xa0\x80"}', "bad UTF-8"),
        (b'{"text": "lone \\ud800 surrogate"}', "bad UTF-8"),
        (b'["text"]', "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'{"content": "x"}', "no text field"),
        (b'{"text": null}', "text is null"),
        (b'{"text": 5}', "text is not a string"),
        (b'{"text": ["x"]}', "text is not a string"),
        (b'{"text": ""}', "empty document"),
        (b'{"text": " \\n\\t"}', "empty document"),
    ],
)
def test_bad_records_are_named_with_their_line_and_the_next_is_read(line: bytes, reason: str) -> None:
    records = _read(b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n')
    assert [record.line for record in records] == [1, 2, 3]
    assert isinstance(records[1], Skipped)
    assert records[1].reason == reason
    assert [record.text for record in records if isinstance(record, Document)] == ["before", "after"]


def test_blank_lines_are_no_records_and_the_last_line_needs_no_end() -> None:
    records = _read(b'\n{"text": "a"}\r\n  \n{"text": "b"}')
    assert [(record.line, record.text) for record in records if isinstance(record, Document)] == [(2, "a"), (4, "b")]
    assert len(records) == 2


def test_line_separators_inside_a_text_do_not_split_it() -> None:
    text = "a\u2028b\x85c\rd\x0be"
    line = json.dumps({"text": text}, ensure_ascii=False).encode()
    assert [record.text for record in _read(line + b"\n") if isinstance(record, Document)] == [text]


def test_a_record_that_would_fill_the_memory_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_formats, "MAX_RECORD_BYTES", 21)
    fits = b'{"text": "12345678"}'
    assert len(fits) == 20  # and its line's end
    long = b'{"text": "' + b"x" * 3_000_000 + b'"}'
    records = _read(fits + b"\n" + long + b'\n{"text": "b"}\n' + long)
    assert [record.line for record in records] == [1, 2, 3, 4]
    assert [record.text for record in records if isinstance(record, Document)] == ["12345678", "b"]
    assert {record.reason for record in records if isinstance(record, Skipped)} == {"longer than a record may be"}
    assert isinstance(_read(b"x" * 21, "text")[0], Document)
    assert isinstance(_read(b"x" * 22, "text")[0], Skipped)


def test_byte_order_mark() -> None:
    for kind, data in (("jsonl", b'\xef\xbb\xbf{"text": "a"}\n'), ("text", b"\xef\xbb\xbfa")):
        (record,) = _read(data, kind)
        assert isinstance(record, Document)
        assert record.text == "a"


def test_json_that_only_python_reads_is_not_lost() -> None:
    (record,) = _read(b'{"score": NaN, "text": "a"}\n')
    assert isinstance(record, Document)


def test_differing_other_columns_do_not_matter() -> None:
    records = _read(b'{"text": "a", "meta": 1}\n{"meta": {"x": [null]}, "text": "b"}\n{"text": "c"}\n')
    assert all(isinstance(record, Document) for record in records)


def test_where_keeps_records_whose_fields_equal() -> None:
    source = Source("s", "unused", where={"lang": "en", "good": "true", "level": "3"})
    lines = [
        {"text": "a", "lang": "en", "good": True, "level": 3},
        {"text": "b", "lang": "de", "good": True, "level": 3},
        {"text": "c", "lang": "en", "good": False, "level": 3},
        {"text": "d", "lang": "en", "good": True},
    ]
    records = _read(b"".join(json.dumps(line).encode() + b"\n" for line in lines), source=source)
    assert [record.text for record in records if isinstance(record, Document)] == ["a"]
    assert {record.reason for record in records if isinstance(record, Skipped)} == {"left out by where"}


def test_a_text_file_is_a_document_line_ends_and_all() -> None:
    (record,) = _read(b"one\r\ntwo\n", "text")
    assert record == Document("one\r\ntwo\n", b"one\r\ntwo\n", 0)
    (record,) = _read(b"caf\xe9", "text")
    assert isinstance(record, Skipped)
    assert record.reason == "bad UTF-8"


@given(
    st.lists(st.one_of(st.binary(max_size=30), st.text(max_size=20).map(lambda t: json.dumps({"text": t}).encode())))
)
def test_every_line_is_a_document_or_accounted_for(lines: list[bytes]) -> None:
    lines = [line.replace(b"\n", b" ") for line in lines]
    records = _read(b"".join(line + b"\n" for line in lines))
    expected = [number for number, line in enumerate(lines, start=1) if line.strip()]
    assert [record.line for record in records] == expected


def _check(path: Path, **options: str) -> None:
    source = Source("s", str(path), **options)
    check_has_documents(source, find_files(source))


def test_no_text_field_lists_the_fields_found(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"content": "x", "id": 1}, {"content": "y", "url": "z"}])
    with pytest.raises(DataError, match=r"no field 'text' in any record\. Fields found: content, id, url\. Set text_f"):
        _check(tmp_path)
    _check(tmp_path, text_field="content")


def test_one_document_anywhere_is_enough(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"other": 1}] * 3)
    write_jsonl(tmp_path / "b.jsonl.gz", [{"text": ""}, {"text": "x"}])
    _check(tmp_path)


def test_empty_sources_say_what_they_hold(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\n\n")
    with pytest.raises(DataError, match="is empty: its 1 file"):
        _check(tmp_path)
    write_jsonl(tmp_path / "a.jsonl", [{"text": ""}, {"text": None}, b"{", {"body": "x"}])
    with pytest.raises(DataError, match=r"1 empty document, 1 text is null, 1 bad JSON, 1 no text field.*found: body"):
        _check(tmp_path)


def test_text_full_of_nul_is_none() -> None:
    utf16 = "UTF-16 without a mark".encode("utf-16-le")
    (record,) = _read(utf16, "text")
    assert isinstance(record, Skipped)
    assert (record.reason, record.is_bad) == ("full of NUL", True)
    assert record.detail == "21 of 42 bytes: UTF-16, or no text"
    (record,) = _read(json.dumps({"text": utf16.decode()}).encode())
    assert isinstance(record, Skipped)
    assert record.reason == "full of NUL"
    (record,) = _read(b"a stray one\0 is left", "text")
    assert isinstance(record, Document)


def _documents(ids: Any, mask: Any, ends: Any) -> list[Any]:
    return list(documents_of_tokens(Row(7, {"ids": ids, "mask": mask, "ends": ends}), _TOKEN_SOURCE))


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
