"""Token stores: what they hold, whatever the number of workers."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from data_prep.errors import DataError
from data_prep.read import Document, InputFile, Records, Source, TokenDocument
from data_prep.tokenize import (
    build,
    build_stores,
    load_tokenizer,
    shards,
)
from tests.data_prep.corpus import build_sources, byte_tokenizer, folder_bytes, six_units, texts_of, write_jsonl


def test_documents_come_back_as_they_were_without_bos_or_eos(tmp_path: Path, corpus: Path) -> None:
    (built,) = build_sources(tmp_path, Source("mixed", str(corpus)))
    store = built.store
    assert texts_of(store) == ["zipped", "first", "caf\u00e9", "</s>", "a whole file\nis a document\n"]
    assert store.manifest["counts"] == {
        "files": 4,
        "documents": 5,
        "tokens": 6 + 5 + 5 + 4 + 27,
        "text_bytes": 6 + 5 + 5 + 4 + 27,
        "skipped": {"bad JSON": 1, "bad UTF-8": 1, "empty document": 1, "text is not a string": 1},
    }
    assert [store.origin(number) for number in range(5)] == [
        ("a/c.jsonl.gz", 1),
        ("b.jsonl", 1),
        ("b.jsonl", 3),
        ("b.jsonl", 5),
        ("z.txt", 0),
    ]
    assert store.table(0)[:, 2].tolist() == [6, 5, 5, 4, 27]
    with pytest.raises(IndexError, match="has 5 documents"):
        store.origin(5)


def test_skipped_records_are_listed_with_file_line_and_reason(tmp_path: Path, corpus: Path) -> None:
    (built,) = build_sources(tmp_path, Source("mixed", str(corpus)))
    entries = [json.loads(line) for line in (built.store.folder / "skipped.jsonl").read_text().splitlines()]
    assert [(entry["where"], entry["reason"]) for entry in entries] == [
        ("a/c.jsonl.gz:2", "text is not a string"),
        ("b.jsonl:2", "bad JSON"),
        ("b.jsonl:4", "empty document"),
        ("bad.txt", "bad UTF-8"),
    ]


def test_records_left_out_by_where_are_counted_not_listed(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "x", "source": name} for name in ("books", "web", "books")])
    (built,) = build_sources(tmp_path, Source("books", str(path), where={"source": "books"}))
    assert built.store.num_documents == 2
    assert built.store.manifest["counts"]["skipped"] == {"left out by where": 1}
    assert (built.store.folder / "skipped.jsonl").read_bytes() == b""


def test_equal_texts_have_equal_hashes(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in ("one", "two", "one")])
    hashes = build_sources(tmp_path, Source("s", str(path)))[0].store.text_hashes(0)
    assert hashes[0] == hashes[2] != hashes[1]


def test_a_document_of_one_megabyte_and_one_of_one_token(tmp_path: Path) -> None:
    long = "".join(random.Random(0).choices("abcdef \n", k=1 << 20))
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "x"}, {"text": long}, {"text": "y"}])
    store = build_sources(tmp_path, Source("s", str(path)))[0].store
    assert np.diff(store.ends(0)).tolist() == [1 << 20, 1]
    assert store.num_tokens == (1 << 20) + 2


def test_bytes_do_not_depend_on_the_number_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = six_units(tmp_path / "files", monkeypatch)
    (one,) = build_sources(tmp_path / "one", source)
    (two,) = build_sources(tmp_path / "two", source, num_workers=2)
    assert one.store.num_shards == 6
    assert one.store.num_documents == 240
    expected, found = folder_bytes(one.store.folder), folder_bytes(two.store.folder)
    for files, built in ((expected, one), (found, two)):  # the tokenizer's path is as the user gave it
        files["manifest.json"] = files["manifest.json"].replace(str(built.store.folder.parents[1]).encode(), b"")
    assert found == expected


def test_progress_tells_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = six_units(tmp_path / "files", monkeypatch)
    tokenizer = load_tokenizer(str(byte_tokenizer(tmp_path / "tokenizer")))
    on_disk = sum(path.stat().st_size for path in (tmp_path / "files").iterdir())
    for num_workers in (1, 2):
        totals: list[tuple[str, int]] = []
        read: list[tuple[str, int]] = []
        build_stores(
            [source],
            tokenizer,
            tmp_path / f"store{num_workers}",
            num_workers=num_workers,
            on_total=lambda *told: totals.append(told),  # noqa: B023
            on_bytes=lambda *told: read.append(told),  # noqa: B023
        )
        assert totals == [("many", on_disk)]
        assert sum(count for _, count in read) == on_disk
        assert {name for name, _ in read} == {"many"}


def test_a_large_file_is_cut_and_its_lines_keep_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [{"text": f"text {number}"} for number in range(100)]
    path = write_jsonl(tmp_path / "a.jsonl", [*records[:70], b"{bad \xf0", {"text": "\ud800"}, *records[70:]])
    (whole,) = build_sources(tmp_path / "whole", Source("s", str(path)))
    plan = shards.plan_units
    monkeypatch.setattr(build, "plan_units", lambda files, source: plan(files, source, path.stat().st_size // 7))
    (cut,) = build_sources(tmp_path / "cut", Source("s", str(path)), num_workers=2)
    assert (whole.store.num_shards, cut.store.num_shards) == (1, 7)
    assert texts_of(cut.store) == texts_of(whole.store)
    assert cut.store.manifest["counts"] == whole.store.manifest["counts"]
    skipped = [(built.store.folder / "skipped.jsonl").read_text() for built in (whole, cut)]
    assert skipped[0] == skipped[1]
    assert '"where": "a.jsonl:71"' in skipped[0]
    for document in (0, 50, 99):
        assert cut.store.origin(document) == whole.store.origin(document)
    os.utime(path, ns=(1, 1))
    assert build_sources(tmp_path / "cut", Source("s", str(path)))[0].reused
    path.write_bytes(path.read_bytes().replace(b"text 99", b"text XY"))
    with pytest.raises(DataError, match=r"file a\.jsonl: changed"):
        build_sources(tmp_path / "cut", Source("s", str(path)))


def test_documents_that_come_as_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [
        TokenDocument(np.array([0, 5, 6, 7, 1]), None, 1),  # BOS and EOS around
        TokenDocument(np.array([0, 0, 5, 1, 6, 1, 1]), np.array([1, 0, 0, 1, 1, 0, 1], dtype=bool), 2),
        Document("a", b"a", 3),
        TokenDocument(np.array([5, 258]), None, 4),
        TokenDocument(np.array([-1]), None, 5),
        TokenDocument(np.array([0, 1]), None, 6),
        TokenDocument(np.array([5, 6]), np.array([True]), 7),
    ]

    @contextmanager
    def open_tokens(file: InputFile, source: Source, on_bytes: object) -> Iterator[Records]:
        yield Records(iter(documents), lambda: "content", lambda: 0)

    monkeypatch.setattr(shards, "open_records", open_tokens)
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "x"}])
    store = build_sources(tmp_path, Source("s", str(path)))[0].store
    assert store.tokens(0)[:-1].tolist() == [5, 6, 7, 5, 1, 6]
    assert store.ends(0).tolist() == [3, 6, 7]
    assert store.has_masks
    mask = store.mask(0)
    assert mask is not None
    assert mask.tolist() == [True, True, True, False, True, True, True]
    assert store.table(0).tolist() == [[0, 1, 0], [0, 2, 0], [0, 3, 1]]
    assert store.manifest["counts"]["skipped"] == {
        "empty document": 1,
        "mask of another length": 1,
        "token id outside the vocabulary": 2,
    }
