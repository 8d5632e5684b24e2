"""Exported folders, read as other programs read them."""

from __future__ import annotations

import json
import shutil
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from anchorcontext.config.schema import RopeConfig
from anchorcontext.models import export
from anchorcontext.models.build import load_model
from anchorcontext.models.export import export_model, sample_of
from anchorcontext.models.read_back import main as read_back
from tests.data_prep.corpus import byte_tokenizer, save_tokenizer
from tests.models.tiny import tiny_config

ANCHOR = 0
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read back without the seconds that a fresh process costs; another test takes them."""
    monkeypatch.setattr(export, "fresh_process", lambda folder, expected: "\n".join(read_back(folder, expected)))


def make(folder: Path, dtype: torch.dtype = torch.float32, **changes: Any) -> nn.Module:
    """A model as training builds it, its tokenizer beside it."""
    byte_tokenizer(folder / "base")
    ids = {"bos_token_id": 0, "eos_token_id": 1}
    tiny_config(**{"vocab_size": 258, **ids, **changes}).save_pretrained(folder / "base")
    return load_model(str(folder / "base"), init="random", rope=RopeConfig(base=7e4), dtype=dtype, max_positions=4096)


def write(folder: Path, model: nn.Module, **changes: Any) -> Path:
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    given = {
        "folder": folder / "hf" / "step-000002",
        "model": model,
        "weights": weights,
        "tokenizer_path": str(folder / "base"),
        "anchor_id": ANCHOR,
        "provenance": {"arm": "anchor"},
        "sample": sample_of(model, torch.tensor([0, 70, 71, 72, 9, 200, 33, 34])),
    }
    (folder / "hf").mkdir(exist_ok=True)
    export_model(**{**given, **changes})
    return folder / "hf" / "step-000002"


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("dtype", "changes"),
    [
        (torch.bfloat16, {}),
        (torch.float32, {"tie_word_embeddings": True}),
        (torch.bfloat16, {"rope_parameters": LLAMA3}),
        (torch.float32, {"model_type": "qwen3", "head_dim": 16}),
        (torch.float32, {"model_type": "phi3", "pad_token_id": None}),
        (
            torch.float32,
            {
                "model_type": "qwen3_moe",
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 32,
                "head_dim": 16,
            },
        ),
    ],
)
def test_both_dialects(tmp_path: Path, dtype: torch.dtype, changes: dict[str, Any]) -> None:
    model = make(tmp_path, dtype, **changes)
    folder = write(tmp_path, model)
    config = read(folder / "config.json")
    assert config["rope_parameters"]["rope_theta"] == config["rope_theta"] == 7e4
    assert config["dtype"] == config["torch_dtype"] == str(dtype).removeprefix("torch.")
    assert config["max_position_embeddings"] == 4096
    assert config["use_cache"] is True
    assert (config["bos_token_id"], config["eos_token_id"]) == (0, 1)
    assert (config["vocab_size"], config["tie_word_embeddings"]) == (258, bool(changes.get("tie_word_embeddings")))
    if "rope_parameters" in changes:
        assert config["rope_scaling"] == {key: value for key, value in LLAMA3.items() if key != "rope_theta"}
    else:
        assert config["rope_scaling"] is None
    generation = read(folder / "generation_config.json")
    assert (generation["bos_token_id"], generation["eos_token_id"], generation["pad_token_id"]) == (0, 1, 1)
    anchor = {"id": 0, "token": "<s>", "added_by_tokenizer": True}
    assert read(folder / "provenance.json") == {"arm": "anchor", "anchor": anchor}
    assert not list(folder.glob("*.partial")) + list((tmp_path / "hf").glob(".tmp-*"))
    assert (folder / "model.safetensors").stat().st_mode & 0o077 == (folder / "config.json").stat().st_mode & 0o077

    again = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    for name, parameter in model.named_parameters():
        assert torch.equal(again.get_parameter(name), parameter), name
    assert again.generate(torch.tensor([[0, 70]]), max_new_tokens=2, do_sample=False).shape == (1, 4)


def with_bos(folder: Path) -> None:
    """The tokenizer adds BOS already."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    save_tokenizer(tokenizer, folder)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("case", ["adds none", "adds BOS", "has none"])
def test_the_anchor_is_added_exactly_once(tmp_path: Path, case: str) -> None:
    model = make(tmp_path)
    changes, anchor = {}, 0
    if case == "adds BOS":
        with_bos(tmp_path / "base")
    elif case == "has none":  # the anchor is EOS
        byte_tokenizer(tmp_path / "base", bos=None)
        changes, anchor = {"anchor_id": 1}, 1
    before = AutoTokenizer.from_pretrained(tmp_path / "base")("some text").input_ids
    folder = write(tmp_path, model, **changes)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = [token for token in before if token > 1]
    assert tokenizer("some text").input_ids == [anchor, *text]
    if case != "adds BOS":  # its own template decides about pairs
        assert tokenizer("some text", "and more").input_ids[: len(text) + 2] == [anchor, *text, anchor]
    assert tokenizer("some text", add_special_tokens=False).input_ids == text
    written = {"id": anchor, "token": ("<s>", "</s>")[anchor], "added_by_tokenizer": True}
    assert read(folder / "provenance.json")["anchor"] == written
    config = read(folder / "tokenizer_config.json")
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert config["model_max_length"] == 4096
    assert len(tokenizer) == 258


@pytest.mark.usefixtures("in_process")
def test_weights_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    model = make(tmp_path)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    empty = {**weights, "lm_head.weight": torch.empty(0)}
    with pytest.raises(RuntimeError, match=r"absent or empty: \['lm_head.weight'\]"):
        write(tmp_path, model, weights=empty)
    with pytest.raises(RuntimeError, match=r"absent or empty: \['model.norm.weight'\]"):
        write(tmp_path, model, weights={name: value for name, value in weights.items() if name != "model.norm.weight"})
    assert not list((tmp_path / "hf").iterdir())


def test_a_fresh_process_compares(tmp_path: Path) -> None:
    """What differs is found, and nothing gets the folder's name."""
    model = make(tmp_path)
    sample = sample_of(model, torch.tensor([0, 70, 71, 72]))
    spoilt = {name: parameter.detach() * 1.1 for name, parameter in model.named_parameters()}
    with pytest.raises(RuntimeError, match="logits differ by"):
        write(tmp_path, model, weights=spoilt, sample=sample)
    assert not (tmp_path / "hf" / "step-000002").exists()


def write_and_keep_expected(folder: Path, model: nn.Module) -> tuple[Path, Path]:
    """An exported folder, not read back, and what it is to be compared with."""
    kept = folder / "expected"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "fresh_process", lambda _, expected: str(shutil.copy(expected, kept))[:0])
        return write(folder, model), kept


def lower_the_base(folder: Path) -> None:
    config = read(folder / "config.json")
    config["rope_parameters"]["rope_theta"] = config["rope_theta"] = 1e4
    (folder / "config.json").write_text(json.dumps(config))


def forget_the_anchor(folder: Path) -> None:
    tokenizer = read(folder / "tokenizer.json")
    (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "post_processor": None}))


@pytest.mark.parametrize(
    ("spoil", "words"), [(lower_the_base, "inverse frequencies"), (forget_the_anchor, "token ids")]
)
def test_read_back_sees(tmp_path: Path, spoil: Callable[[Path], None], words: str) -> None:
    folder, kept = write_and_keep_expected(tmp_path, make(tmp_path))
    assert read_back(str(folder), str(kept)) == []
    spoil(folder)
    assert words in "\n".join(read_back(str(folder), str(kept)))


@pytest.mark.slow
def test_transformers_4_57_reads_it(tmp_path: Path) -> None:
    """The oldest reader: another environment, whose transformers comes before ours."""
    venv.create(tmp_path / "old", with_pip=True)
    python = tmp_path / "old" / "bin" / "python"
    packages = ["transformers==4.57.3", "tokenizers==0.22.1", "huggingface_hub==0.36.0"]
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", *packages], check=True)
    (site_packages,) = (tmp_path / "old").glob("lib/python*/site-packages")
    ours = Path(torch.__file__).parents[1]
    (site_packages / "zz_ours.pth").write_text(f"{ours}\n")

    for number, changes in enumerate(({}, {"rope_parameters": LLAMA3}, {"tie_word_embeddings": True})):
        folder = tmp_path / str(number)
        exported, kept = write_and_keep_expected(folder, make(folder, torch.bfloat16, **changes))
        assert export.fresh_process(exported, kept, str(python)) == ""
        assert export.fresh_process(exported, kept) == ""
