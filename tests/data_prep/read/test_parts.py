"""Samples of a source, and large files read in parts."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.errors import DataError
from data_prep.read import (
    Document,
    InputFile,
    Source,
    content_hash,
    find_files,
    open_records,
    parse_limit,
    sample_files,
    split_file,
)
from data_prep.read.parts import Limit
from tests.data_prep.corpus import write_jsonl


def _corpus(folder: Path, num_files: int, num_records: int) -> Path:
    for number in range(num_files):
        write_jsonl(folder / f"{number:03d}.jsonl", [{"text": f"{number:03d} {row:06d}"} for row in range(num_records)])
    return folder


def _sampled(folder: Path, limit: str) -> tuple[list[str], list[InputFile], dict[str, Any]]:
    source = Source("s", str(folder), limit=limit)
    files, account = sample_files(find_files(source), source)
    assert account is not None
    texts = []
    for file in files:
        with open_records(file, source) as records:
            texts += [record.text for record in records if isinstance(record, Document)]
            records.finish()
    return texts, files, account


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("1%", Limit(share=0.01)),
        ("0.25", Limit(share=0.25)),
        ("500MB", Limit(num_bytes=5e8)),
        ("1.5 gb", Limit(num_bytes=1.5e9)),
        ("10000_records", Limit(num_records=10_000)),
        ("100%", Limit(share=1)),
    ],
)
def test_limits(text: str, limit: Limit) -> None:
    assert parse_limit(text) == limit


@pytest.mark.parametrize("text", ["", "all", "0%", "101%", "5", "-1%", "1%%", "0MB"])
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(DataError, match="limit="):
        parse_limit(text)


@pytest.mark.parametrize("limit", ["10%", "0.1", "2000_records"])
def test_a_tenth_of_the_records_of_few_files(tmp_path: Path, limit: str) -> None:
    texts, files, account = _sampled(_corpus(tmp_path, 4, 5000), limit)
    assert len(files) == account["files"] == account["of_files"] == 4
    assert account["fraction"] == pytest.approx(0.1, rel=0.02)
    assert 1900 < len(texts) < 2100  # 2,000 expected, standard deviation 42
    assert {text[:3] for text in texts} == {f"{number:03d}" for number in range(4)}
    assert _sampled(tmp_path, limit)[0] == texts


def test_of_many_files_most_are_not_read(tmp_path: Path) -> None:
    texts, files, account = _sampled(_corpus(tmp_path, 400, 50), "1%")
    assert len(files) == 32
    assert account["read_bytes"] / account["num_bytes"] == pytest.approx(32 / 400)
    assert account["fraction"] == pytest.approx(0.01)
    assert 150 < len(texts) < 250
    texts, files, _ = _sampled(tmp_path, "20%")
    assert len(files) == 80
    assert len(texts) == 80 * 50
    assert [file.number for file in files] == sorted(file.number for file in files)


def test_a_larger_sample_holds_the_smaller_one(tmp_path: Path) -> None:
    _corpus(tmp_path, 10, 500)
    assert set(_sampled(tmp_path, "5%")[0]) < set(_sampled(tmp_path, "20%")[0])


def test_whole_files_of_plain_text(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number}.txt").write_text("x" * 100)
    texts, files, account = _sampled(tmp_path, "5%")
    assert len(texts) == len(files) == 10
    assert account["fraction"] == pytest.approx(0.05)


def test_bytes(tmp_path: Path) -> None:
    _corpus(tmp_path, 4, 5000)
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    _, _, account = _sampled(tmp_path, "0.1MB")
    assert account["fraction"] == pytest.approx(1e5 / total)


def test_no_limit_is_no_sample(tmp_path: Path) -> None:
    source = Source("s", str(_corpus(tmp_path, 1, 1)))
    files = find_files(source)
    assert sample_files(files, source) == (files, None)


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
