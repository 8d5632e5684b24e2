"""The export of a run whose weights are divided among ranks."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from anchorcontext.config.schema import TrainConfig
from anchorcontext.train import export as train_export
from tests.models.tiny import tiny_config
from tests.train.data import TinyData
from tests.train.runs import checkpoint, train_here
from tests.workers import run_on


def train_and_export(config: TrainConfig) -> str | None:
    """Train and export, read back in this process to save the seconds of a fresh one."""
    from anchorcontext.models import export
    from anchorcontext.models.read_back import main

    with mock.patch.object(export, "fresh_process", lambda folder, expected: "\n".join(main(folder, expected))):
        return train_here(config, export=True)


@pytest.mark.parametrize(("stage", "precision"), [(3, "bf16"), (1, "float32")])
def test_gathered_whole(tiny_data: TinyData, tmp_path: Path, stage: int, precision: str) -> None:
    config = tiny_data.config(tmp_path, deepspeed__zero_stage=stage, training__precision=precision, training__steps=2)
    assert run_on(2, train_and_export, config) == [None, None]
    folder = tmp_path / "hf" / "step-000002"
    weights = load_file(folder / "model.safetensors")
    assert {value.dtype for value in weights.values()} == {
        getattr(torch, {"bf16": "bfloat16"}.get(precision, precision))
    }
    if stage == 1:  # whole in the checkpoint too
        saved = checkpoint(tmp_path, 2)["mp_rank_00_model_states.pt"]["module"]
        for name, value in weights.items():
            assert torch.equal(value, saved[f"model.{name}"]), name
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["arm"] == "anchor"
    assert provenance["window_tokens"] == 96
    assert provenance["rope_parameters"]["rope_theta"] == 5e4
    assert provenance["windows_seen"] == 8
    assert 0 < provenance["tokens_seen"] <= 8 * 96
    assert len(provenance["index_hash"]) == 64
    assert provenance["anchor"] == {"id": 0, "token": "<s>", "added_by_tokenizer": True}


def test_tied_weights_divided_by_zero_3(tiny_data: TinyData, tmp_path: Path) -> None:
    base = tmp_path / "tied"
    shutil.copytree(tiny_data.model, base)
    tiny_config(vocab_size=258, bos_token_id=0, eos_token_id=1, tie_word_embeddings=True).save_pretrained(base)
    changes = {"deepspeed__zero_stage": 3, "training__steps": 2}
    config = tiny_data.config(tmp_path / "run", model__path=str(base), **changes)
    assert run_on(2, train_and_export, config) == [None, None]  # compared with training as it is read back
    folder = tmp_path / "run" / "hf" / "step-000002"
    weights = load_file(folder / "model.safetensors")
    assert "lm_head.weight" not in weights
    assert weights["model.embed_tokens.weight"].shape == (258, 64)
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is True
    again = AutoModelForCausalLM.from_pretrained(folder)
    assert again.lm_head.weight.data_ptr() == again.model.embed_tokens.weight.data_ptr()


def test_the_commit_is_that_of_this_project_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed in an environment that lies in somebody's repository, the package is of no commit."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "theirs"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()

    def commit_of(root: Path) -> str | None:
        (root / "anchorcontext" / "train").mkdir(parents=True)
        monkeypatch.setattr(train_export, "__file__", str(root / "anchorcontext" / "train" / "export.py"))
        return train_export._commit()

    assert commit_of(tmp_path / "env" / "site-packages") is None
    assert commit_of(tmp_path) == head
