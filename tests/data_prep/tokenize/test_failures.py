"""What is wrong with a source, a file or a worker is said, and costs nothing that is finished."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.errors import DataError
from data_prep.read import Source
from data_prep.tokenize import (
    DocumentTokenizer,
    build,
    build_stores,
    load_tokenizer,
    pool,
)
from tests.data_prep.corpus import build_sources, byte_tokenizer, six_units, texts_of, write_jsonl


def test_a_document_that_the_tokenizer_fails_on_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "fine"}, {"text": "bad"}, {"text": "good"}])
    encode = DocumentTokenizer.encode

    class PanicError(BaseException):
        """As Rust code raises it."""

    def panic(self: DocumentTokenizer, texts: list[str]) -> list[np.ndarray]:
        if "bad" in texts:
            raise PanicError("index out of bounds")
        return encode(self, texts)

    monkeypatch.setattr(DocumentTokenizer, "encode", panic)
    (built,) = build_sources(tmp_path, Source("s", str(path)))
    assert texts_of(built.store) == ["fine", "good"]
    assert built.store.manifest["counts"]["skipped"] == {"the tokenizer failed": 1}
    assert "index out of bounds" in (built.store.folder / "skipped.jsonl").read_text()


def _die(task: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = six_units(tmp_path / "files", monkeypatch)
    monkeypatch.setattr(pool, "_run_task", _die)
    with pytest.raises(DataError, match="a tokenizing process was killed"):
        build_sources(tmp_path, source, num_workers=2)


_FAIL_BESIDE_MANY_FILES = """
import sys
from pathlib import Path
from data_prep.read import Source
from data_prep.tokenize import build_stores, load_tokenizer
folder = Path(sys.argv[1])
if __name__ == "__main__":
    sources = [Source(name, str(folder / name)) for name in ("broken", "many")]
    build_stores(sources, load_tokenizer(str(folder / "tokenizer")), folder / "store", num_workers=2)
"""


def test_a_failure_is_said_at_once_whatever_others_are_at(tmp_path: Path) -> None:
    """The other process has more to tell of its progress than a pipe holds, and a pipe that is full never ends."""
    byte_tokenizer(tmp_path / "tokenizer")
    # The largest unit, so that it is taken first, beside the first of six with 1,000 files each.
    lines = b"".join(b'{"text": "%x"}\n' % (number**9) for number in range(1000))
    write_jsonl(tmp_path / "broken" / "a.jsonl", [{"text": "fine"}])
    (tmp_path / "broken" / "b.jsonl.gz").write_bytes(gzip.compress(lines)[:-20])
    (tmp_path / "many").mkdir()
    for number in range(6000):
        (tmp_path / "many" / f"{number}.txt").write_text("x")
    program = tmp_path / "program.py"
    program.write_text(_FAIL_BESIDE_MANY_FILES)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(program), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert "b.jsonl.gz is truncated" in done.stderr
    assert not (tmp_path / "store" / "many" / "parts" / "00005.json").exists()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_truncated_archive_ends_the_run_and_is_named(tmp_path: Path, num_workers: int) -> None:
    write_jsonl(tmp_path / "files" / "a.jsonl", [{"text": "fine"}])
    data = gzip.compress(b'{"text": "x"}\n' * 1000)
    (tmp_path / "files" / "b.jsonl.gz").write_bytes(data[:-20])
    other = write_jsonl(tmp_path / "other.jsonl", [{"text": "fine"}])
    sources = [Source("broken", str(tmp_path / "files")), Source("other", str(other))]
    with pytest.raises(DataError, match=r"b\.jsonl\.gz is truncated"):
        build_sources(tmp_path, *sources, num_workers=num_workers)


def test_every_source_is_checked_before_any_is_tokenized(tmp_path: Path) -> None:
    good = write_jsonl(tmp_path / "good.jsonl", [{"text": "x"}])
    bad = write_jsonl(tmp_path / "bad.jsonl", [{"content": "x"}])
    with pytest.raises(DataError, match="no field 'text'"):
        build_sources(tmp_path, Source("good", str(good)), Source("bad", str(bad)))
    assert not list((tmp_path / "store").rglob("*.bin"))


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "x"}])
    find = build.find_files

    def find_then_grow(source: Source) -> Any:
        files = find(source)
        write_jsonl(path, [{"text": "x"}, {"text": "more"}])
        return files

    monkeypatch.setattr(build, "find_files", find_then_grow)
    with pytest.raises(DataError, match=r"a\.jsonl changed while it was read"):
        build_sources(tmp_path, Source("s", str(path)))


def test_a_store_inside_its_own_source(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": "x"}])
    with pytest.raises(DataError, match=r"the token store .* lies inside .*put it elsewhere"):
        build_sources(tmp_path, Source("s", str(tmp_path)))
    with pytest.raises(DataError, match="put it elsewhere"):  # its lists of files and of skipped records
        build_sources(tmp_path, Source("s", str(tmp_path), pattern="*.jsonl"))
    build_sources(tmp_path, Source("s", str(tmp_path), pattern="a.*"))


def test_no_sources(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no sources"):
        build_sources(tmp_path)


def test_a_tokenizer_that_leaves_nothing_of_any_document(tmp_path: Path) -> None:
    folder = byte_tokenizer(tmp_path / "tokenizer")
    definition = json.loads((folder / "tokenizer.json").read_text())
    definition["normalizer"] = {"type": "Replace", "pattern": {"Regex": ".*"}, "content": ""}
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "x"}])
    with pytest.raises(DataError, match="not one document is left; its records: "):
        build_stores([Source("s", str(path))], load_tokenizer(str(folder)), tmp_path / "store")
