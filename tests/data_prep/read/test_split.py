"""Parts of large files: every record once, in order, whatever the cuts."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.errors import DataError
from data_prep.read import Document, Source, content_hash, find_files, open_records, split_file
from tests.data_prep.corpus import write_jsonl


def _texts(path: Path, unit_bytes: int) -> tuple[list[str], int]:
    source = Source("s", str(path))
    whole = path.read_bytes().split(b"\n")
    (file,) = find_files(source)
    parts = split_file(file, unit_bytes)
    assert sum(part.num_bytes for part in parts) == file.num_bytes
    assert [part.span[0] for part in parts[1:] if part.span] == [part.span[1] for part in parts[:-1] if part.span]
    texts, lines = [], 0
    for part in parts:
        told: list[int] = []
        with open_records(part, source, told.append) as records:
            for record in records:
                assert isinstance(record, Document)
                assert json.loads(whole[lines + record.line - 1])["text"] == record.text
                texts.append(record.text)
            assert records.finish() == content_hash(part)
            lines += records.num_lines
        assert sum(told) == part.num_bytes
    return texts, len(parts)


@settings(deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=30).filter(lambda text: "\0" not in text and not text.isspace())),
    st.integers(1, 50),
)
def test_every_line_belongs_to_one_part(tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int) -> None:
    path = write_jsonl(tmp_path_factory.mktemp("split") / "a.jsonl", ({"text": text} for text in texts))
    assert _texts(path, size)[0] == texts


def test_a_line_longer_than_a_part_is_not_cut(tmp_path: Path) -> None:
    texts = ["x" * 100_000, "y", "z" * 300_000, "w"]
    path = write_jsonl(tmp_path / "a.jsonl", ({"text": text} for text in texts))
    assert _texts(path, 1000) == (texts, 3)


def test_a_last_line_without_an_end(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(json.dumps({"text": str(number)}).encode() for number in range(9)))
    assert _texts(tmp_path / "a.jsonl", 20)[0] == [str(number) for number in range(9)]


def test_blank_lines_count(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "x"}\n\n\n\n\n\n\n' * 9)
    assert _texts(tmp_path / "a.jsonl", 15) == (["x"] * 9, 10)


def test_what_cannot_be_cut_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("line\n" * 100)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n' * 100))
    for file in find_files(Source("s", str(tmp_path))):
        assert split_file(file, 10) == [file]


@pytest.mark.parametrize("unit_bytes", [100, 10**6])
def test_a_file_that_changed_and_is_as_long_as_before(tmp_path: Path, unit_bytes: int) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "x" * 50}] * 10)
    source = Source("s", str(path))
    first = split_file(find_files(source)[0], unit_bytes)[0]
    write_jsonl(path, [{"text": "y" * 50}] * 10)
    os.utime(path, ns=(1, 1))
    with open_records(first, source) as records, pytest.raises(DataError, match=r"a\.jsonl changed while it was read"):
        records.finish()
