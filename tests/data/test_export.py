"""An export: what datasets reads back is what the windows were."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from anchorcontext.commands.export_data import run
from anchorcontext.config.schema import ExportDataConfig
from anchorcontext.data import export
from anchorcontext.data.collator import AnchorCollator
from anchorcontext.data.export import file_ranges
from anchorcontext.data.windows import PackedWindows
from anchorcontext.errors import ConfigError
from data_prep.disk import read_json
from data_prep.pack import PackOptions, build_index
from data_prep.read import Source
from data_prep.tokenize import build_stores, load_tokenizer
from tests.data_prep.corpus import byte_tokenizer, make_index, write_jsonl

TEXTS = {"long": ["abcdefghij" * 9, "q" * 15], "short": [f"text {number}" for number in range(40)]}


@pytest.fixture
def config(tmp_path: Path) -> ExportDataConfig:
    index = make_index(tmp_path / "data", TEXTS, window_tokens=32, held_out_fraction=0.3)
    config = ExportDataConfig(file_tokens=100, output=str(tmp_path / "out"))
    config.data.index = str(index)
    return config


def test_round_trip(config: ExportDataConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    datasets = pytest.importorskip("datasets")
    run(config)
    assert f"datasets.load_dataset('{config.output}')" in capsys.readouterr().out
    read = datasets.load_dataset(config.output, cache_dir=str(tmp_path / "cache"))
    assert set(read) == {"train", "held_out"}
    for split in read:
        windows = PackedWindows(config.data.index, split)
        assert len(read[split]) == len(windows) > 3  # several files
        for number, row in enumerate(read[split]):
            window = windows[number]
            assert row["input_ids"] == window.input_ids.tolist()
            for name in ("piece_lengths", "prefix_lengths", "document_ids", "starts", "ends"):
                assert row[name] == getattr(window, name)
            assert row["piece_sources"] == [windows.source_names[source] for source in window.piece_sources]
            assert row["loss_mask"] == (None if window.loss_mask is None else window.loss_mask.tolist())


def test_the_collator_takes_rows_as_it_takes_windows(config: ExportDataConfig, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    run(config)
    rows = datasets.load_dataset(config.output, split="train", cache_dir=str(tmp_path / "cache"))
    windows = PackedWindows(config.data.index)
    for arm in ("anchor", "document_reset"):
        ours, theirs = (AnchorCollator(arm=arm)([items[0], items[3]]) for items in (windows, rows))
        for name in ("input_ids", "position_ids", "labels", "shift_labels"):
            assert torch.equal(ours[name], theirs[name])
        assert ours["attention_context"].plan.digest == theirs["attention_context"].plan.digest


def test_first_windows_of_one_split(config: ExportDataConfig) -> None:
    config.splits, config.windows = ["held_out"], 2
    run(config)
    names = {path.name for path in Path(config.output).iterdir()}
    assert names == {".lock", "README.md", "export.json", "held_out-00000-of-00001.parquet"}


def test_what_is_there_is_replaced_only_when_asked(config: ExportDataConfig) -> None:
    run(config)
    with pytest.raises(ConfigError, match=r"output=.* is not empty: overwrite=true"):
        run(config)
    config.overwrite, config.file_tokens = True, 10**6
    run(config)
    assert len(list(Path(config.output).glob("*.parquet"))) == 2
    (Path(config.output) / "mine.txt").touch()
    with pytest.raises(ConfigError, match=r"output=.* holds other files"):
        run(config)


def test_files_that_are_not_an_exports_are_left_alone(config: ExportDataConfig) -> None:
    config.overwrite = True
    Path(config.output).mkdir()
    for name in ("train-00000-of-00001.parquet", "README.md"):
        (Path(config.output) / name).write_text("mine")
    with pytest.raises(ConfigError, match=r"output=.* holds other files"):
        run(config)
    assert (Path(config.output) / "train-00000-of-00001.parquet").read_text() == "mine"


def test_an_export_that_was_killed_is_refused_and_replaced(
    config: ExportDataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    output, cache = Path(config.output), str(tmp_path / "cache")
    run(config)
    config.overwrite = True
    with monkeypatch.context() as patch:
        patch.setattr(export, "card", lambda splits: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(config)
    assert read_json(output / export.MANIFEST)["finished"] is False
    assert len(list(output.glob("*.parquet"))) > 3
    with pytest.raises(FileNotFoundError, match="this-export-is-not-finished"):
        datasets.load_dataset(config.output, cache_dir=cache)
    run(config)
    assert read_json(output / export.MANIFEST)["finished"] is True
    assert set(datasets.load_dataset(config.output, cache_dir=cache)) == {"train", "held_out"}


def test_files_hold_whole_windows() -> None:
    assert [each[1:] for each in file_ranges("train", 7, 32, 100)] == [(0, 3), (3, 6), (6, 7)]
    assert [each[0] for each in file_ranges("train", 2, 32, 1)] == [f"train-0000{n}-of-00002.parquet" for n in (0, 1)]
    assert list(file_ranges("train", 0, 32, 100)) == []


def test_a_split_without_windows_is_left_out(tmp_path: Path) -> None:
    config = ExportDataConfig(output=str(tmp_path / "out"))
    config.data.index = str(make_index(tmp_path, ["text"], window_tokens=16, held_out_fraction=0.0))
    run(config)
    assert [path.name for path in Path(config.output).glob("*.parquet")] == ["train-00000-of-00001.parquet"]


def test_masks_go_with_the_windows(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    write_jsonl(tmp_path / "asked.jsonl", [{"ids": [10, 11, 12, 13], "mask": [0, 0, 1, 1]}])
    tokenizer = load_tokenizer(str(byte_tokenizer(tmp_path / "tokenizer")))
    source = Source("asked", str(tmp_path / "asked.jsonl"), token_field="ids", mask_field="mask")
    stores = [built.store for built in build_stores([source], tokenizer, tmp_path / "store")]
    config = ExportDataConfig(output=str(tmp_path / "out"))
    config.data.index = str(build_index(stores, PackOptions(8, held_out_fraction=0.0), tmp_path / "index").index.folder)
    run(config)
    (row,) = datasets.load_dataset(config.output, split="train", cache_dir=str(tmp_path / "cache"))
    assert row["input_ids"][:6] == [0, 10, 11, 12, 13, 1]
    assert row["loss_mask"] == [False, False, False, True, True, True, False, False]
