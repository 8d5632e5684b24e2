"""Opening a pack index that is not there, or no longer fits its stores."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from data_prep.errors import DataError
from data_prep.pack import PackIndex
from tests.data_prep.corpus import make_index, make_store


def test_unprepared_data_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no pack index in .*Run `anchorcontext pack` first"):
        PackIndex(tmp_path / "nothing")


def test_another_format_version(tmp_path: Path) -> None:
    folder = make_index(tmp_path, ["text"], window_tokens=16)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format_version": 99}))
    with pytest.raises(DataError, match="has format version 99, this is version 1"):
        PackIndex(folder)


def test_a_store_that_is_gone(tmp_path: Path) -> None:
    index = PackIndex(make_index(tmp_path, ["text"], window_tokens=16))
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(DataError, match=r"no token store in .*Move an index together with its stores"):
        index.open_stores()


def test_a_store_that_was_made_anew(tmp_path: Path) -> None:
    index = PackIndex(make_index(tmp_path, ["text"], window_tokens=16))
    shutil.rmtree(tmp_path / "store")
    make_store(tmp_path, ["other"])
    with pytest.raises(DataError, match="was made anew since"):
        index.open_stores()
