"""Finished stores: reused, refused or made anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from data_prep.errors import DataError
from data_prep.read import Source
from data_prep.tokenize import (
    build_stores,
    load_tokenizer,
)
from tests.data_prep.corpus import build_sources, byte_tokenizer, folder_bytes, texts_of


def test_the_same_again_is_reused(tmp_path: Path, corpus: Path) -> None:
    (first,) = build_sources(tmp_path, Source("mixed", str(corpus)))
    before = folder_bytes(first.store.folder)
    (second,) = build_sources(tmp_path, Source("mixed", str(corpus)))
    assert (first.reused, second.reused) == (False, True)
    assert folder_bytes(second.store.folder) == before


def test_a_new_date_or_place_of_the_same_files_is_no_change(tmp_path: Path, corpus: Path) -> None:
    build_sources(tmp_path, Source("mixed", str(corpus)))
    os.utime(corpus / "z.txt", ns=(1, 1))
    corpus.rename(tmp_path / "moved")
    (built,) = build_sources(tmp_path, Source("mixed", str(tmp_path / "moved")))
    assert built.reused


def test_a_store_of_something_else_is_refused_and_says_what_differs(tmp_path: Path, corpus: Path) -> None:
    build_sources(tmp_path, Source("mixed", str(corpus)))
    (corpus / "z.txt").write_text("a whole file\nis A document\n")  # of the same size
    (corpus / "a" / "c.jsonl.gz").unlink()
    (corpus / "new.txt").write_text("new")
    other = Source("mixed", str(corpus), text_field="body")
    with pytest.raises(DataError, match="is not what this config makes") as error:
        build_sources(tmp_path, other)
    for line in (
        "text_field: made with 'text', now 'body'",
        "file a/c.jsonl.gz: gone",
        "file new.txt: new",
        "file z.txt: changed",
        "overwrite=true",
    ):
        assert line in str(error.value)


def test_another_tokenizer_is_refused(tmp_path: Path, corpus: Path) -> None:
    build_sources(tmp_path, Source("mixed", str(corpus)))
    other = load_tokenizer(str(byte_tokenizer(tmp_path / "other", bos=None)))
    with pytest.raises(DataError, match=r"tokenizer: made with .*tokenizer, now .*other"):
        build_stores([Source("mixed", str(corpus))], other, tmp_path / "store")


def test_overwrite_makes_it_anew(tmp_path: Path, corpus: Path) -> None:
    (first,) = build_sources(tmp_path, Source("mixed", str(corpus)))
    (corpus / "z.txt").write_text("other")
    (second,) = build_sources(tmp_path, Source("mixed", str(corpus)), overwrite=True)
    assert not second.reused
    assert texts_of(second.store)[-1] == "other"
    assert second.store.hash != first.store.hash
    assert folder_bytes(second.store.folder) == folder_bytes(
        build_sources(tmp_path, Source("mixed", str(corpus)))[0].store.folder
    )


def test_a_damaged_store_is_named_and_overwrite_mends_it(tmp_path: Path, corpus: Path) -> None:
    (built,) = build_sources(tmp_path, Source("mixed", str(corpus)))
    shard = built.store.folder / "00000.tokens.bin"
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(DataError, match=r"00000\.tokens\.bin has 92 bytes where the manifest says 94"):
        build_sources(tmp_path, Source("mixed", str(corpus)))
    (mended,) = build_sources(tmp_path, Source("mixed", str(corpus)), overwrite=True)
    assert mended.store.hash == built.store.hash


def test_nothing_is_cleared_for_one_source_before_all_are_examined(tmp_path: Path, corpus: Path) -> None:
    (built,) = build_sources(tmp_path, Source("mixed", str(corpus)))
    before = folder_bytes(built.store.folder)
    (corpus / "z.txt").write_text("changed")
    with pytest.raises(DataError, match="nothing at"):
        build_sources(
            tmp_path, Source("mixed", str(corpus)), Source("other", str(tmp_path / "missing")), overwrite=True
        )
    assert folder_bytes(built.store.folder) == before
