"""Loss by position: token-weighted, the same on any ranks, equal to a dense model's."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from anchorcontext.commands.evaluate import run
from anchorcontext.config.schema import EvaluateConfig
from anchorcontext.data.windows import PackedWindows
from anchorcontext.errors import ConfigError
from anchorcontext.evaluate.losses import WindowLosses
from anchorcontext.evaluate.positions import WindowSums, bucket_edges, by_position, merge, sum_by_bucket
from anchorcontext.plots import read_positions
from tests.data_prep.corpus import byte_tokenizer, make_index, save_tokenizer
from tests.models.tiny import tiny_model
from tests.workers import run_on

WINDOW_TOKENS = 37
EDGES = [5, 16, 37]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`index`: 5 windows of 37 rows; `one` and `two`: tiny models with the index's tokenizer."""
    folder = tmp_path_factory.mktemp("evaluate")
    texts = ["the quick brown fox jumps over the lazy dog " * 2, "pack my box", "with five dozen", "jugs", "x" * 36]
    make_index(folder, texts, window_tokens=WINDOW_TOKENS, held_out_fraction=0.0)
    for seed, name in enumerate(("one", "two")):
        model = tiny_model(vocab_size=300, seed=seed, bos_token_id=0, eos_token_id=1)
        model.save_pretrained(folder / name)
        byte_tokenizer(folder / name)
    return folder


def config_for(folder: Path, output: str, **changes: Any) -> EvaluateConfig:
    config = EvaluateConfig(
        models={"one": str(folder / "one"), "two": str(folder / "two")},
        split="train",
        buckets=EDGES[:-1],
        windows=0,
        loss_chunk_rows=7,
        output=str(folder / output),
    )
    config.data.index = str(folder / "index")
    config.attention.arm = "anchor"
    for key, value in changes.items():
        setattr(config, key, value)
    return config


@pytest.fixture(scope="module")
def on_one_rank(folder: Path) -> Path:
    run(config_for(folder, "one_rank"))
    return folder / "one_rank"


def dense_losses(model_folder: Path, windows: PackedWindows, number: int, arm: str) -> torch.Tensor:
    """Losses of a window's rows, float32 [rows], by transformers' own attention and the oracle mask."""
    window = windows[number]
    layout = window.layout(arm)
    model = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager", dtype=torch.float32)
    mask = torch.zeros(layout.num_rows, layout.num_rows).masked_fill(~layout.dense_mask(), torch.finfo().min)
    with torch.no_grad():
        logits = model(
            input_ids=window.input_ids[None],
            position_ids=layout.position_ids[None],
            attention_mask=mask[None, None],
            use_cache=False,
        ).logits[0]
    return F.cross_entropy(logits, layout.shift_labels(window.input_ids), reduction="none", ignore_index=-100)


@pytest.mark.parametrize("arm", ["anchor", "full"])
def test_losses_equal_those_of_a_dense_model(folder: Path, arm: str) -> None:
    config = config_for(folder, f"dense_{arm}")
    config.attention.arm = arm
    run(config)
    windows = PackedWindows(folder / "index")
    results = read_positions(folder / f"dense_{arm}" / "by_position.csv")
    for name in config.models:
        losses = torch.stack([dense_losses(folder / name, windows, number, arm) for number in range(len(windows))])
        valid = torch.stack(
            [windows[n].layout(arm).shift_labels(windows[n].input_ids) != -100 for n in range(len(windows))]
        )
        for low, bucket in zip([0, *EDGES[:-1]], results[name], strict=True):
            rows = slice(low, bucket.high)
            assert bucket.tokens == int(valid[:, rows].sum())
            assert bucket.loss == pytest.approx(losses[:, rows].double().sum().item() / bucket.tokens, rel=1e-5)


def evaluate_on_worker(config: EvaluateConfig) -> None:
    run(config)


@pytest.mark.parametrize("context_size", [1, 2])
def test_two_ranks_find_what_one_finds(folder: Path, on_one_rank: Path, context_size: int) -> None:
    config = config_for(folder, f"two_ranks_{context_size}")
    config.context_parallel.size = context_size
    run_on(2, evaluate_on_worker, config)
    alone = read_positions(on_one_rank / "by_position.csv")
    together = read_positions(folder / f"two_ranks_{context_size}" / "by_position.csv")
    assert list(together) == list(alone)
    for name, buckets in alone.items():
        for one, two in zip(buckets, together[name], strict=True):
            assert (one.low, one.high, one.tokens) == (two.low, two.high, two.tokens)
            assert two.loss == pytest.approx(one.loss, rel=1e-6)
            assert two.standard_error == pytest.approx(one.standard_error, rel=1e-3)


def test_the_csv_follows_from_the_json_lines(on_one_rank: Path) -> None:
    lines = [json.loads(line) for line in (on_one_rank / "windows.jsonl").read_text().splitlines()]
    assert [(line["model"], line["window"]) for line in lines] == [(m, w) for m in ("one", "two") for w in range(5)]
    for name, buckets in read_positions(on_one_rank / "by_position.csv").items():
        for place, bucket in enumerate(buckets):
            entries = [line["buckets"][place] for line in lines if line["model"] == name]
            assert {(entry["low"], entry["high"]) for entry in entries} == {(bucket.low, bucket.high)}
            assert bucket.tokens == sum(entry["tokens"] for entry in entries)
            assert bucket.loss == pytest.approx(sum(entry["nll"] for entry in entries) / bucket.tokens, rel=1e-12)


def test_files_and_the_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(config_for(folder, "files", windows=2))
    output = folder / "files"
    assert (output / "loss_by_position.png").read_bytes().startswith(b"\x89PNG")
    written = json.loads((output / "evaluation.json").read_text())
    assert written["index_hash"] == PackedWindows(folder / "index").index_hash
    assert (written["windows"], written["window_tokens"], written["arm"]) == (2, 37, "anchor")
    assert written["rope_compute"] == "float32"
    printed = capsys.readouterr().out
    for bucket in read_positions(output / "by_position.csv")["two"]:
        assert f"{bucket.low}-{bucket.high - 1}" in printed
        assert f"{bucket.loss:.4f} +- {bucket.standard_error:.3f}" in printed


@pytest.mark.parametrize("asked_for", [0, 5, 16])
def test_fewer_windows_than_were_asked_for(folder: Path, capsys: pytest.CaptureFixture[str], asked_for: int) -> None:
    config = config_for(folder, f"asked_for_{asked_for}", windows=asked_for)
    del config.models["two"]
    run(config)
    written = json.loads((folder / f"asked_for_{asked_for}" / "evaluation.json").read_text())
    assert (written["windows"], written["windows_asked_for"]) == (5, asked_for or 5)
    note = "16 windows were asked for; the split has 5: all 5 are evaluated"
    assert written["note"] == (note if asked_for == 16 else None)
    assert (note in capsys.readouterr().out.splitlines()) == (asked_for == 16)


def test_default_buckets_double_up_to_the_window() -> None:
    assert bucket_edges([], 4096) == [64, 128, 256, 512, 1024, 2048, 4096]
    assert bucket_edges([], 8193) == [64, 128, 256, 512, 1024, 2048, 4096, 8192, 8193]
    assert bucket_edges([], 20) == [20]
    assert bucket_edges([10, 20], 64) == [10, 20, 64]
    assert bucket_edges([64], 64) == [64]
    with pytest.raises(ConfigError, match="the windows have 64 rows"):
        bucket_edges([32, 65], 64)


def test_a_mean_is_weighted_by_tokens_and_its_error_is_that_of_a_ratio() -> None:
    sums = [WindowSums(0, [10.0, 0.0], [4, 0]), WindowSums(1, [2.0, 0.0], [1, 0]), WindowSums(2, [9.0, 0.0], [2, 0])]
    (bucket,) = by_position(sums, [8, 16])  # the second bucket has no label, and is left out
    assert (bucket.low, bucket.high, bucket.tokens, bucket.loss) == (0, 8, 7, 3.0)
    residuals = (10 - 3 * 4, 2 - 3 * 1, 9 - 3 * 2)
    assert bucket.standard_error == pytest.approx(math.sqrt(3 / 2 * sum(r * r for r in residuals)) / 7)
    (alone,) = by_position(sums[:1], [8, 16])
    assert alone.standard_error is None


@settings(max_examples=50, deadline=None)
@given(data=st.data(), num_rows=st.integers(1, 60), num_ranks=st.integers(1, 4))
def test_any_split_over_ranks_gives_the_same_sums(data: st.DataObject, num_rows: int, num_ranks: int) -> None:
    owner = torch.tensor(data.draw(st.lists(st.integers(0, num_ranks - 1), min_size=num_rows, max_size=num_rows)))
    rows, losses = torch.arange(num_rows), torch.arange(num_rows) / 8  # sums of eighths are exact
    edges = bucket_edges(sorted(data.draw(st.sets(st.integers(1, num_rows)))), num_rows)
    whole = sum_by_bucket(WindowLosses(3, rows, losses), edges)
    parts = [[sum_by_bucket(WindowLosses(3, rows[owner == r], losses[owner == r]), edges)] for r in range(num_ranks)]
    assert merge(parts) == [whole]
    assert sum(whole.tokens) == num_rows
    assert merge([[whole], [replace(whole, window=1)]]) == [replace(whole, window=1), whole]


def test_checkpoints_that_do_not_fit_are_named_before_any_is_evaluated(folder: Path, tmp_path: Path) -> None:
    small = tiny_model(vocab_size=200)
    small.save_pretrained(tmp_path / "small")
    tiny_model(vocab_size=300).save_pretrained(tmp_path / "other")
    other = Tokenizer.from_file(str(byte_tokenizer(tmp_path / "other") / "tokenizer.json"))
    other.add_tokens(["ab"])
    save_tokenizer(other, tmp_path / "other")
    config = config_for(folder, "refused", models={"small": str(tmp_path / "small"), "other": str(tmp_path / "other")})
    with pytest.raises(ConfigError) as caught:
        run(config)
    problems = {problem.key: problem.fix for problem in caught.value.problems}
    assert "has 200 tokens" in problems["models.small"]
    assert "is not the one the index was packed with" in problems["models.other"]
    assert not (folder / "refused").exists()

    tiny_model(vocab_size=300).config.save_pretrained(tmp_path / "bare")  # no weights
    with pytest.raises(ConfigError, match=r"models\.bare=.*can be read"):
        run(config_for(folder, "refused", models={"bare": str(tmp_path / "bare")}))


def test_a_checkpoint_without_a_tokenizer_is_believed(folder: Path, tmp_path: Path) -> None:
    tiny_model(vocab_size=300).save_pretrained(tmp_path / "bare")
    run(config_for(folder, "bare", models={"bare": str(tmp_path / "bare")}, windows=1))
    assert list(read_positions(folder / "bare" / "by_position.csv")) == ["bare"]


def test_a_loss_that_is_no_number_names_model_and_window(folder: Path, tmp_path: Path) -> None:
    broken = tiny_model(vocab_size=300)
    broken.model.embed_tokens.weight.data[ord("q") - ord("!") + 2] = float("nan")  # the letter q, in one window
    broken.save_pretrained(tmp_path / "broken")
    run(config_for(folder, "broken", windows=1))
    before = {path.name: path.read_bytes() for path in (folder / "broken").iterdir()}
    models = {"one": str(folder / "one"), "broken": str(tmp_path / "broken")}
    with pytest.raises(ConfigError, match=r"models\.broken=.*its loss on window \d is nan"):
        run(config_for(folder, "broken", models=models))
    after = {path.name: path.read_bytes() for path in (folder / "broken").iterdir() if path.is_file()}
    assert after == before  # the earlier evaluation is whole
    run(config_for(folder, "broken", windows=1))
    assert {path.name for path in (folder / "broken").iterdir()} == before.keys()
