"""verify=true: a sound index is called sound, and damage is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import MISSING

from anchorcontext.commands.inspect import run
from anchorcontext.config.schema import InspectConfig
from data_prep.errors import DataError
from tests.data_prep.corpus import make_index


@pytest.fixture
def config(tmp_path: Path) -> InspectConfig:
    texts = {"books": ["abcdefghij" * 4, "xyz"], "code": ["x = 1"]}
    config = InspectConfig(verify=True)
    config.data.index = str(make_index(tmp_path, texts, window_tokens=16, held_out_fraction=0.0))
    return config


def change_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_sound(config: InspectConfig, capsys: pytest.CaptureFixture[str]) -> None:
    run(config)
    folder = Path(config.data.index)
    stores = [path for path in (folder.parent / "store").glob("*/*") if path.name != "manifest.json"]
    num_bytes = sum(path.stat().st_size for path in stores)
    total = num_bytes + sum(path.stat().st_size for path in folder.glob("*.bin"))
    assert capsys.readouterr().out == f"sound: {folder} and 2 token stores, {total:,} bytes\n"
    config.data.store, config.data.index = str(folder.parent / "store"), MISSING
    run(config)
    assert capsys.readouterr().out == f"sound: 2 token stores in {config.data.store}, {num_bytes:,} bytes\n"


def test_every_damaged_file_is_named(config: InspectConfig, tmp_path: Path) -> None:
    damaged = [tmp_path / "store" / source / "00000.hashes.bin" for source in ("books", "code")]
    for path in damaged:
        change_a_byte(path)
    with pytest.raises(DataError, match="2 problems in") as error:
        run(config)
    assert all(str(path.relative_to(tmp_path)) in str(error.value) for path in damaged)


def test_stores_without_an_index(config: InspectConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.data.index = MISSING
    config.data.store = str(tmp_path / "store" / "code")
    run(config)
    assert "sound: 1 token store in" in capsys.readouterr().out
    config.data.store = str(tmp_path / "store")
    change_a_byte(tmp_path / "store" / "books" / "files.jsonl")
    (tmp_path / "store" / "code" / "manifest.json").unlink()
    with pytest.raises(
        DataError, match=r"2 problems in 2 token stores in .*\n.*files\.jsonl .*\n.*no token store in .*code"
    ):
        run(config)
    config.data.store = str(tmp_path / "nothing")
    with pytest.raises(DataError, match="no token store in"):
        run(config)


def test_a_damaged_index_and_a_store_that_is_gone(config: InspectConfig, tmp_path: Path) -> None:
    change_a_byte(Path(config.data.index) / "train.pieces.bin")
    with pytest.raises(DataError, match=r"train\.pieces\.bin is not what was written"):
        run(config)
    (tmp_path / "store" / "code" / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"1 problem in .*\n.*no token store in .*code"):
        run(config)
