"""Token stores: what they hold, when they are reused, finished, refused or made anew."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.errors import DataError
from data_prep.read import Document, InputFile, Records, Source, TokenDocument
from data_prep.store import TokenStore
from data_prep.tokenize import (
    BuiltStore,
    DocumentTokenizer,
    build,
    build_stores,
    load_tokenizer,
    pool,
    shard_writer,
    shards,
)
from tests.data_prep.corpus import byte_tokenizer, folder_bytes, text_of, write_jsonl


def _build(folder: Path, *sources: Source, num_workers: int = 1, overwrite: bool = False) -> list[BuiltStore]:
    tokenizer = load_tokenizer(str(byte_tokenizer(folder / "tokenizer")))
    return build_stores(sources, tokenizer, folder / "store", num_workers=num_workers, overwrite=overwrite)


def _texts(store: TokenStore) -> list[str]:
    found = []
    for shard in range(store.num_shards):
        tokens, begin = store.tokens(shard), 0
        for end in store.ends(shard).tolist():
            found.append(text_of(tokens[begin:end].tolist()))
            begin = end
    return found


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    write_jsonl(folder / "b.jsonl", [{"text": "first"}, b"{bad", {"text": "caf\u00e9"}, {"text": ""}, {"text": "</s>"}])
    write_jsonl(folder / "a" / "c.jsonl.gz", [{"text": "zipped"}, {"text": 5}])
    (folder / "z.txt").write_text("a whole file\nis a document\n")
    (folder / "bad.txt").write_bytes(b"\xff")
    return folder


def test_documents_come_back_as_they_were_without_bos_or_eos(tmp_path: Path, corpus: Path) -> None:
    (built,) = _build(tmp_path, Source("mixed", str(corpus)))
    store = built.store
    assert _texts(store) == ["zipped", "first", "caf\u00e9", "</s>", "a whole file\nis a document\n"]
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
    (built,) = _build(tmp_path, Source("mixed", str(corpus)))
    entries = [json.loads(line) for line in (built.store.folder / "skipped.jsonl").read_text().splitlines()]
    assert [(entry["where"], entry["reason"]) for entry in entries] == [
        ("a/c.jsonl.gz:2", "text is not a string"),
        ("b.jsonl:2", "bad JSON"),
        ("b.jsonl:4", "empty document"),
        ("bad.txt", "bad UTF-8"),
    ]


def test_records_left_out_by_where_are_counted_not_listed(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "x", "source": name} for name in ("books", "web", "books")])
    (built,) = _build(tmp_path, Source("books", str(path), where={"source": "books"}))
    assert built.store.num_documents == 2
    assert built.store.manifest["counts"]["skipped"] == {"left out by where": 1}
    assert (built.store.folder / "skipped.jsonl").read_bytes() == b""


def test_equal_texts_have_equal_hashes(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in ("one", "two", "one")])
    hashes = _build(tmp_path, Source("s", str(path)))[0].store.text_hashes(0)
    assert hashes[0] == hashes[2] != hashes[1]


def test_a_document_of_one_megabyte_and_one_of_one_token(tmp_path: Path) -> None:
    long = "".join(random.Random(0).choices("abcdef \n", k=1 << 20))
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "x"}, {"text": long}, {"text": "y"}])
    store = _build(tmp_path, Source("s", str(path)))[0].store
    assert np.diff(store.ends(0)).tolist() == [1 << 20, 1]
    assert store.num_tokens == (1 << 20) + 2


def _many_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A source of six units."""
    for number in range(12):
        write_jsonl(folder / f"{number:02d}.jsonl", [{"text": f"text {number} {line}"} for line in range(20)])
    size = (folder / "00.jsonl").stat().st_size
    plan = shards.plan_units
    monkeypatch.setattr(build, "plan_units", lambda files, source: plan(files, source, 2 * size + 50))
    return Source("many", str(folder))


def test_bytes_do_not_depend_on_the_number_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _many_files(tmp_path / "files", monkeypatch)
    (one,) = _build(tmp_path / "one", source)
    (two,) = _build(tmp_path / "two", source, num_workers=2)
    assert one.store.num_shards == 6
    assert one.store.num_documents == 240
    expected, found = folder_bytes(one.store.folder), folder_bytes(two.store.folder)
    for files, built in ((expected, one), (found, two)):  # the tokenizer's path is as the user gave it
        files["manifest.json"] = files["manifest.json"].replace(str(built.store.folder.parents[1]).encode(), b"")
    assert found == expected


def test_progress_tells_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _many_files(tmp_path / "files", monkeypatch)
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


def test_the_same_again_is_reused(tmp_path: Path, corpus: Path) -> None:
    (first,) = _build(tmp_path, Source("mixed", str(corpus)))
    before = folder_bytes(first.store.folder)
    (second,) = _build(tmp_path, Source("mixed", str(corpus)))
    assert (first.reused, second.reused) == (False, True)
    assert folder_bytes(second.store.folder) == before


def test_a_new_date_or_place_of_the_same_files_is_no_change(tmp_path: Path, corpus: Path) -> None:
    _build(tmp_path, Source("mixed", str(corpus)))
    os.utime(corpus / "z.txt", ns=(1, 1))
    corpus.rename(tmp_path / "moved")
    (built,) = _build(tmp_path, Source("mixed", str(tmp_path / "moved")))
    assert built.reused


def test_a_store_of_something_else_is_refused_and_says_what_differs(tmp_path: Path, corpus: Path) -> None:
    _build(tmp_path, Source("mixed", str(corpus)))
    (corpus / "z.txt").write_text("a whole file\nis A document\n")  # of the same size
    (corpus / "a" / "c.jsonl.gz").unlink()
    (corpus / "new.txt").write_text("new")
    other = Source("mixed", str(corpus), text_field="body")
    with pytest.raises(DataError, match="is not what this config makes") as error:
        _build(tmp_path, other)
    for line in (
        "text_field: made with 'text', now 'body'",
        "file a/c.jsonl.gz: gone",
        "file new.txt: new",
        "file z.txt: changed",
        "overwrite=true",
    ):
        assert line in str(error.value)


def test_another_tokenizer_is_refused(tmp_path: Path, corpus: Path) -> None:
    _build(tmp_path, Source("mixed", str(corpus)))
    other = load_tokenizer(str(byte_tokenizer(tmp_path / "other", bos=None)))
    with pytest.raises(DataError, match=r"tokenizer: made with .*tokenizer, now .*other"):
        build_stores([Source("mixed", str(corpus))], other, tmp_path / "store")


def test_overwrite_makes_it_anew(tmp_path: Path, corpus: Path) -> None:
    (first,) = _build(tmp_path, Source("mixed", str(corpus)))
    (corpus / "z.txt").write_text("other")
    (second,) = _build(tmp_path, Source("mixed", str(corpus)), overwrite=True)
    assert not second.reused
    assert _texts(second.store)[-1] == "other"
    assert second.store.hash != first.store.hash
    assert folder_bytes(second.store.folder) == folder_bytes(
        _build(tmp_path, Source("mixed", str(corpus)))[0].store.folder
    )


def test_a_damaged_store_is_named_and_overwrite_mends_it(tmp_path: Path, corpus: Path) -> None:
    (built,) = _build(tmp_path, Source("mixed", str(corpus)))
    shard = built.store.folder / "00000.tokens.bin"
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(DataError, match=r"00000\.tokens\.bin has 92 bytes where the manifest says 94"):
        _build(tmp_path, Source("mixed", str(corpus)))
    (mended,) = _build(tmp_path, Source("mixed", str(corpus)), overwrite=True)
    assert mended.store.hash == built.store.hash


def test_finished_shards_are_kept_when_a_run_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _many_files(tmp_path / "files", monkeypatch)
    expected = _build(tmp_path, source)[0].store
    undisturbed = folder_bytes(expected.folder)
    shutil.rmtree(expected.folder)

    written: list[int] = []

    def fail_at_the_fourth(*arguments: Any) -> Any:
        if len(written) == 3:
            raise OSError("disk full")
        written.append(arguments[2].number)
        return shards.write_shard(*arguments)

    monkeypatch.setattr(pool, "write_shard", fail_at_the_fourth)
    with pytest.raises(OSError, match="disk full"):
        _build(tmp_path, source)
    with pytest.raises(DataError, match="no token store"):
        TokenStore(expected.folder)
    monkeypatch.setattr(pool, "write_shard", shards.write_shard)
    (built,) = _build(tmp_path, source)
    assert (written, built.kept_shards, built.reused) == ([0, 1, 2], 3, False)
    assert folder_bytes(built.store.folder) == undisturbed


def test_what_an_interrupted_run_left_of_other_files_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _many_files(tmp_path / "files", monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(build, "finish_store", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            _build(tmp_path, source)
    write_jsonl(tmp_path / "files" / "00.jsonl", [{"text": "changed"}])
    (built,) = _build(tmp_path, source)
    assert built.kept_shards == 0
    assert _texts(built.store)[0] == "changed"


_UNIT_BYTES = 20_000
_BUILD_IN_A_PROCESS = f"""
import sys
from pathlib import Path
from data_prep.read import Source
from data_prep.tokenize import build, build_stores, load_tokenizer, shard_writer, shards
folder = Path(sys.argv[1])
shards._CHECKPOINT_SECONDS = 0.0  # in worker processes too, which run this file anew
shard_writer._BATCH_CHARACTERS = 20_000
if __name__ == "__main__":
    plan = shards.plan_units
    build.plan_units = lambda files, source: plan(files, source, {_UNIT_BYTES})
    tokenizer = load_tokenizer(str(folder / "tokenizer"))
    (built,) = build_stores([Source("many", str(folder / "files"))], tokenizer, folder / "store", num_workers=2)
    print(built.kept_shards, built.reused)
"""


def _start(folder: Path) -> subprocess.Popen[str]:
    program = folder / "program.py"
    program.write_text(_BUILD_IN_A_PROCESS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, str(program), str(folder)], stdout=subprocess.PIPE, text=True, env=environment
    )


def _finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return output.strip()


def _kill(process: subprocess.Popen[str]) -> None:
    """The parent alone: its workers must see to themselves."""
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)  # returns once every worker has closed its end of the pipe


def _prepare_files(folder: Path) -> None:
    byte_tokenizer(folder / "tokenizer")
    for number in range(12):  # a record is a checkpoint, and a checkpoint waits for the disk several times
        text = "".join(random.Random(number).choices("abcdef \n", k=2000))
        write_jsonl(folder / "files" / f"{number:02d}.jsonl", [{"text": text}] * 12)
    lines = [{"text": f"{number} {text}"} for number in range(40)]
    write_jsonl(folder / "files" / "one.jsonl.gz", [*lines, b"{bad"])  # cannot be cut: resumed inside


def test_a_killed_run_is_continued_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _prepare_files(tmp_path)
    store = tmp_path / "store" / "many"
    process = _start(tmp_path)
    while not (list(store.glob("parts/*[0-9].json")) and list(store.glob("parts/*.checkpoint.json"))):
        assert process.poll() is None
        time.sleep(0.001)
    _kill(process)
    assert not (store / "manifest.json").exists()
    kept, reused = _finish(_start(tmp_path)).split()
    assert int(kept) >= 1
    assert reused == "False"
    continued = folder_bytes(store)
    shutil.rmtree(store)
    plan = shards.plan_units
    monkeypatch.setattr(build, "plan_units", lambda files, source: plan(files, source, _UNIT_BYTES))
    (undisturbed,) = _build(tmp_path, Source("many", str(tmp_path / "files")))
    assert folder_bytes(undisturbed.store.folder) == continued


@pytest.mark.slow
def test_twenty_kills_at_random_moments(tmp_path: Path) -> None:
    _prepare_files(tmp_path)
    store = tmp_path / "store" / "many"
    began = time.monotonic()
    _finish(_start(tmp_path))
    seconds = time.monotonic() - began
    undisturbed = folder_bytes(store)
    chance = random.Random(0)
    for _ in range(20):
        if (store / "manifest.json").exists():
            shutil.rmtree(store)
        process = _start(tmp_path)
        time.sleep(chance.uniform(0.3, 1) * seconds)
        _kill(process)
    _finish(_start(tmp_path))
    assert folder_bytes(store) == undisturbed


def test_a_file_goes_on_where_it_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [{"text": f"text {number}"} for number in range(400)]
    path = write_jsonl(tmp_path / "a.jsonl.gz", [*lines[:100], b"{bad", *lines[100:]])
    undisturbed = folder_bytes(_build(tmp_path, Source("s", str(path)))[0].store.folder)
    shutil.rmtree(tmp_path / "store")

    monkeypatch.setattr(shards, "_CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(shard_writer, "_BATCH_CHARACTERS", 300)
    encode = DocumentTokenizer.encode
    left, encoded = [300, 1000], 0

    def encode_some(self: DocumentTokenizer, texts: list[str]) -> list[np.ndarray]:
        nonlocal encoded
        encoded += len(texts)
        if encoded > left[0]:
            raise KeyboardInterrupt
        return encode(self, texts)

    monkeypatch.setattr(DocumentTokenizer, "encode", encode_some)
    with pytest.raises(KeyboardInterrupt):
        _build(tmp_path, Source("s", str(path)))
    with open(next((tmp_path / "store" / "s" / "parts").glob("*.tokens.growing")), "ab") as growing:
        growing.write(b"written after the last checkpoint")
    encoded = 0
    left.pop(0)
    (built,) = _build(tmp_path, Source("s", str(path)))
    assert 0 < encoded < 180  # of 400
    assert folder_bytes(built.store.folder) == undisturbed


def test_a_checkpoint_whose_files_are_gone_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": f"text {number}"} for number in range(50)])
    undisturbed = folder_bytes(_build(tmp_path, Source("s", str(path)))[0].store.folder)
    shutil.rmtree(tmp_path / "store")
    monkeypatch.setattr(shards, "_CHECKPOINT_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(shard_writer.ShardWriter, "commit", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            _build(tmp_path, Source("s", str(path)))
    next((tmp_path / "store" / "s" / "parts").glob("*.ends.growing")).unlink()
    (built,) = _build(tmp_path, Source("s", str(path)))
    assert folder_bytes(built.store.folder) == undisturbed


def test_a_large_file_is_cut_and_its_lines_keep_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [{"text": f"text {number}"} for number in range(100)]
    path = write_jsonl(tmp_path / "a.jsonl", [*records[:70], b"{bad \xf0", {"text": "\ud800"}, *records[70:]])
    (whole,) = _build(tmp_path / "whole", Source("s", str(path)))
    plan = shards.plan_units
    monkeypatch.setattr(build, "plan_units", lambda files, source: plan(files, source, path.stat().st_size // 7))
    (cut,) = _build(tmp_path / "cut", Source("s", str(path)), num_workers=2)
    assert (whole.store.num_shards, cut.store.num_shards) == (1, 7)
    assert _texts(cut.store) == _texts(whole.store)
    assert cut.store.manifest["counts"] == whole.store.manifest["counts"]
    skipped = [(built.store.folder / "skipped.jsonl").read_text() for built in (whole, cut)]
    assert skipped[0] == skipped[1]
    assert '"where": "a.jsonl:71"' in skipped[0]
    for document in (0, 50, 99):
        assert cut.store.origin(document) == whole.store.origin(document)
    os.utime(path, ns=(1, 1))
    assert _build(tmp_path / "cut", Source("s", str(path)))[0].reused
    path.write_bytes(path.read_bytes().replace(b"text 99", b"text XY"))
    with pytest.raises(DataError, match=r"file a\.jsonl: changed"):
        _build(tmp_path / "cut", Source("s", str(path)))


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
    (built,) = _build(tmp_path, Source("s", str(path)))
    assert _texts(built.store) == ["fine", "good"]
    assert built.store.manifest["counts"]["skipped"] == {"the tokenizer failed": 1}
    assert "index out of bounds" in (built.store.folder / "skipped.jsonl").read_text()


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
    store = _build(tmp_path, Source("s", str(path)))[0].store
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


def _die(task: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _many_files(tmp_path / "files", monkeypatch)
    monkeypatch.setattr(pool, "_run_task", _die)
    with pytest.raises(DataError, match="a tokenizing process was killed"):
        _build(tmp_path, source, num_workers=2)


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
    write_jsonl(tmp_path / "broken" / "a.jsonl", [{"text": "fine"}])
    (tmp_path / "broken" / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n' * 1000)[:-20])
    (tmp_path / "many").mkdir()
    for number in range(6000):
        (tmp_path / "many" / f"{number}.txt").write_text("x")
    program = tmp_path / "program.py"
    program.write_text(_FAIL_BESIDE_MANY_FILES)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(program), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert "b.jsonl.gz is truncated" in done.stderr
    assert not (tmp_path / "store" / "many" / "parts" / "00000.json").exists()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_truncated_archive_ends_the_run_and_is_named(tmp_path: Path, num_workers: int) -> None:
    write_jsonl(tmp_path / "files" / "a.jsonl", [{"text": "fine"}])
    data = gzip.compress(b'{"text": "x"}\n' * 1000)
    (tmp_path / "files" / "b.jsonl.gz").write_bytes(data[:-20])
    other = write_jsonl(tmp_path / "other.jsonl", [{"text": "fine"}])
    sources = [Source("broken", str(tmp_path / "files")), Source("other", str(other))]
    with pytest.raises(DataError, match=r"b\.jsonl\.gz is truncated"):
        _build(tmp_path, *sources, num_workers=num_workers)


def test_every_source_is_checked_before_any_is_tokenized(tmp_path: Path) -> None:
    good = write_jsonl(tmp_path / "good.jsonl", [{"text": "x"}])
    bad = write_jsonl(tmp_path / "bad.jsonl", [{"content": "x"}])
    with pytest.raises(DataError, match="no field 'text'"):
        _build(tmp_path, Source("good", str(good)), Source("bad", str(bad)))
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
        _build(tmp_path, Source("s", str(path)))


def test_nothing_is_cleared_for_one_source_before_all_are_examined(tmp_path: Path, corpus: Path) -> None:
    (built,) = _build(tmp_path, Source("mixed", str(corpus)))
    before = folder_bytes(built.store.folder)
    (corpus / "z.txt").write_text("changed")
    with pytest.raises(DataError, match="nothing at"):
        _build(tmp_path, Source("mixed", str(corpus)), Source("other", str(tmp_path / "missing")), overwrite=True)
    assert folder_bytes(built.store.folder) == before


def test_a_store_inside_its_own_source(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": "x"}])
    with pytest.raises(DataError, match=r"the token store .* lies inside .*put it elsewhere"):
        _build(tmp_path, Source("s", str(tmp_path)))
    with pytest.raises(DataError, match="put it elsewhere"):  # its lists of files and of skipped records
        _build(tmp_path, Source("s", str(tmp_path), pattern="*.jsonl"))
    _build(tmp_path, Source("s", str(tmp_path), pattern="a.*"))


def test_no_sources(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no sources"):
        _build(tmp_path)


def test_a_tokenizer_that_leaves_nothing_of_any_document(tmp_path: Path) -> None:
    folder = byte_tokenizer(tmp_path / "tokenizer")
    definition = json.loads((folder / "tokenizer.json").read_text())
    definition["normalizer"] = {"type": "Replace", "pattern": {"Regex": ".*"}, "content": ""}
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "x"}])
    with pytest.raises(DataError, match="not one document is left; its records: "):
        build_stores([Source("s", str(path))], load_tokenizer(str(folder)), tmp_path / "store")
