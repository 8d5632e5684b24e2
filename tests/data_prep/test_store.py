"""Opening a token store; what it holds is tested where it is built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_prep.errors import DataError
from data_prep.store import TokenStore, store_hash
from tests.data_prep.corpus import make_store


def test_no_store_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no token store in .*`anchorcontext pack`"):
        TokenStore(tmp_path)


def test_another_format_version(tmp_path: Path) -> None:
    folder = make_store(tmp_path, ["text"]).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format_version": 99}))
    with pytest.raises(DataError, match="has format version 99, this is version 1"):
        TokenStore(folder)


def test_a_manifest_that_lacks_something(tmp_path: Path) -> None:
    folder = make_store(tmp_path, ["text"]).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["lists"], manifest["counts"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"manifest\.json lacks counts, lists: make the store anew"):
        TokenStore(folder)


@pytest.mark.parametrize(
    "name", ["00000.tokens.bin", "00000.ends.bin", "00000.table.bin", "00000.hashes.bin", "files.jsonl"]
)
def test_files_that_are_gone_or_cut_short(tmp_path: Path, name: str) -> None:
    folder = make_store(tmp_path, ["text", "more"]).folder
    path = folder / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"{name} has \d+ bytes where the manifest says \d+"):
        TokenStore(folder)
    path.unlink()
    with pytest.raises(DataError, match=rf"{name} has no file where"):
        TokenStore(folder)


def test_the_hash_is_of_the_content_and_not_of_the_place(tmp_path: Path) -> None:
    here, there = (make_store(tmp_path / name, ["text", "more"]) for name in ("here", "there"))
    assert here.manifest["tokenizer"]["path"] != there.manifest["tokenizer"]["path"]
    assert here.hash == there.hash == store_hash(here.manifest)
    assert make_store(tmp_path / "other", ["text", "Less"]).hash != here.hash
