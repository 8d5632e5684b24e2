"""Corpora that several tests of token stores read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data_prep.corpus import write_jsonl


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    write_jsonl(folder / "b.jsonl", [{"text": "first"}, b"{bad", {"text": "caf\u00e9"}, {"text": ""}, {"text": "</s>"}])
    write_jsonl(folder / "a" / "c.jsonl.gz", [{"text": "zipped"}, {"text": 5}])
    (folder / "z.txt").write_text("a whole file\nis a document\n")
    (folder / "bad.txt").write_bytes(b"\xff")
    return folder
