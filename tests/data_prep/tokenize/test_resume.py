"""Token stores that an interrupted run left unfinished are finished to the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.errors import DataError
from data_prep.read import Source
from data_prep.store import TokenStore
from data_prep.tokenize import (
    DocumentTokenizer,
    build,
    pool,
    shard_writer,
    shards,
)
from tests.data_prep.corpus import build_sources, byte_tokenizer, folder_bytes, six_units, texts_of, write_jsonl


def test_finished_shards_are_kept_when_a_run_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = six_units(tmp_path / "files", monkeypatch)
    expected = build_sources(tmp_path, source)[0].store
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
        build_sources(tmp_path, source)
    with pytest.raises(DataError, match="no token store"):
        TokenStore(expected.folder)
    monkeypatch.setattr(pool, "write_shard", shards.write_shard)
    (built,) = build_sources(tmp_path, source)
    assert (written, built.kept_shards, built.reused) == ([0, 1, 2], 3, False)
    assert folder_bytes(built.store.folder) == undisturbed


def test_what_an_interrupted_run_left_of_other_files_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = six_units(tmp_path / "files", monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(build, "finish_store", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build_sources(tmp_path, source)
    write_jsonl(tmp_path / "files" / "00.jsonl", [{"text": "changed"}])
    (built,) = build_sources(tmp_path, source)
    assert built.kept_shards == 0
    assert texts_of(built.store)[0] == "changed"


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
    (undisturbed,) = build_sources(tmp_path, Source("many", str(tmp_path / "files")))
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
    undisturbed = folder_bytes(build_sources(tmp_path, Source("s", str(path)))[0].store.folder)
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
        build_sources(tmp_path, Source("s", str(path)))
    with open(next((tmp_path / "store" / "s" / "parts").glob("*.tokens.growing")), "ab") as growing:
        growing.write(b"written after the last checkpoint")
    encoded = 0
    left.pop(0)
    (built,) = build_sources(tmp_path, Source("s", str(path)))
    assert 0 < encoded < 180  # of 400
    assert folder_bytes(built.store.folder) == undisturbed


def test_a_checkpoint_whose_files_are_gone_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": f"text {number}"} for number in range(50)])
    undisturbed = folder_bytes(build_sources(tmp_path, Source("s", str(path)))[0].store.folder)
    shutil.rmtree(tmp_path / "store")
    monkeypatch.setattr(shards, "_CHECKPOINT_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(shard_writer.ShardWriter, "commit", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build_sources(tmp_path, Source("s", str(path)))
    next((tmp_path / "store" / "s" / "parts").glob("*.ends.growing")).unlink()
    (built,) = build_sources(tmp_path, Source("s", str(path)))
    assert folder_bytes(built.store.folder) == undisturbed
