"""Sound stores and indexes pass; every kind of damage is named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from data_prep.disk import digest_file
from data_prep.pack import PackIndex
from data_prep.pack.index import index_hash
from data_prep.pack.pieces import PIECE_DTYPE
from data_prep.store import TokenStore, store_hash
from data_prep.verify import store_bytes, verify_index, verify_store
from tests.data_prep.corpus import make_index, make_store

_TEXTS = [f"text number {number}" * (number % 7 + 1) for number in range(60)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path, _TEXTS).folder


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return make_index(tmp_path, _TEXTS, window_tokens=64, end_of_document="eos", held_out_fraction=0.2, seed=0)


def _rewrite(folder: Path, name: str, change: Callable[[bytearray], None]) -> None:
    data = bytearray((folder / name).read_bytes())
    change(data)
    (folder / name).write_bytes(data)


def _reseal_store(folder: Path) -> None:
    """Checksums and hash of what is there now: damage that was there before they were made."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for number, shard in enumerate(manifest["shards"]):
        for kind, written in shard["files"].items():
            written["sha256"] = digest_file(folder / f"{number:05d}.{kind}.bin")
    manifest["hash"] = store_hash(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_sound_store_and_every_byte_read(store: Path) -> None:
    read: list[int] = []
    assert verify_store(store, read.append) == []
    files = [path for path in store.iterdir() if path.name != "manifest.json"]
    assert sum(read) == store_bytes(store) == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("kind", ["tokens", "ends", "table", "hashes"])
def test_one_changed_bit_is_found(store: Path, kind: str) -> None:
    _rewrite(store, f"00000.{kind}.bin", lambda data: data.__setitem__(-1, data[-1] ^ 1))
    assert any(f"00000.{kind}.bin is not what was written" in problem for problem in verify_store(store))


def test_what_is_no_store(store: Path, tmp_path: Path) -> None:
    (problem,) = verify_store(tmp_path / "nothing")
    assert "no token store" in problem
    inputs = (store / "files.jsonl").rename(tmp_path / "files.jsonl")
    assert any("files.jsonl has no file" in problem for problem in verify_store(store))
    inputs.rename(store / "files.jsonl")
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["counts"]["documents"] += 1
    manifest["source"] = "other"
    (store / "manifest.json").write_text(json.dumps(manifest))
    problems = "\n".join(verify_store(store))
    assert "its manifest has been changed" in problems
    assert "counts documents otherwise" in problems


def test_a_store_that_breaks_its_own_rules(store: Path) -> None:
    def wrong_end(data: bytearray) -> None:
        ends = np.frombuffer(data, dtype="<u8")
        ends[3] = ends[5]

    _rewrite(store, "00000.ends.bin", wrong_end)
    _rewrite(store, "00000.tokens.bin", lambda data: data.__setitem__(slice(0, 2), b"\xff\xff"))
    _reseal_store(store)
    problems = "\n".join(verify_store(store))
    assert "ends do not divide" in problems
    assert "token id 65535 of a vocabulary of 258" in problems


def test_a_sound_index(index: Path) -> None:
    assert verify_index(index) == []


def test_an_index_that_is_damaged_or_whose_store_is_another(index: Path, tmp_path: Path) -> None:
    _rewrite(index, "train.pieces.bin", lambda data: data.__setitem__(8, data[8] ^ 1))
    assert any("train.pieces.bin is not what was written" in problem for problem in verify_index(index))
    manifest = json.loads((index / "manifest.json").read_text())
    (index / "manifest.json").write_text(json.dumps({**manifest, "seed": 5}))
    assert any("its manifest has been changed" in problem for problem in verify_index(index))
    (tmp_path / "store" / "texts" / "manifest.json").unlink()
    (problem,) = verify_index(index)
    assert "no token store" in problem


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("start", 3, "is not of one document"),
        ("length", 10_000, "rows of 64"),
        ("shard", 9, "shard 9, which there is none"),
        ("source", 7, "source 7, shard 0, which there is none"),
    ],
)
def test_an_index_that_breaks_its_own_rules(index: Path, field: str, value: int, problem: str) -> None:
    def change(data: bytearray) -> None:
        pieces = np.frombuffer(data, dtype=PIECE_DTYPE)
        pieces[field][0] += value

    _rewrite(index, "train.pieces.bin", change)
    manifest = json.loads((index / "manifest.json").read_text())
    manifest["splits"]["train"]["files"]["pieces"]["sha256"] = digest_file(index / "train.pieces.bin")
    manifest["index_hash"] = index_hash(manifest)
    (index / "manifest.json").write_text(json.dumps(manifest))
    assert PackIndex(index).hash == manifest["index_hash"]
    assert any(problem in found for found in verify_index(index))


@pytest.mark.parametrize("name", ["files.jsonl", "skipped.jsonl"])
@pytest.mark.parametrize("data", [b'{"half": ', b"3\n", b'{"name": "a"}\n{"name": "b"}\n'])
def test_lists_of_inputs_and_of_skipped_records_are_checked(store: Path, name: str, data: bytes) -> None:
    (store / name).write_bytes(data)
    (problem,) = verify_store(store)
    assert re.search(rf"{name} (has {len(data)} bytes where the manifest says|is not what was written)", problem)


def test_the_list_of_skipped_records_is_needed_by_nothing_else(store: Path) -> None:
    (store / "skipped.jsonl").unlink()
    TokenStore(store)
    (problem,) = verify_store(store)
    assert problem.endswith("skipped.jsonl is missing")


def test_a_manifest_that_lacks_something_is_named(store: Path, index: Path) -> None:
    needed = ("source", "hash", "counts", "lists", "shards", "stores", "splits", "index_hash")
    for folder, verify in ((store, verify_store), (index, verify_index)):
        manifest = json.loads((folder / "manifest.json").read_text())
        for key in manifest:
            for other in ({name: value for name, value in manifest.items() if name != key}, {**manifest, key: 3}):
                (folder / "manifest.json").write_text(json.dumps(other))
                found = verify(folder)
                assert all(str(folder) in problem for problem in found)
                assert found or key not in needed, key
        (folder / "manifest.json").write_text(json.dumps(manifest))
