"""The export of a run whose weights are divided among ranks."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file

from anchorcontext.config.schema import TrainConfig
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
