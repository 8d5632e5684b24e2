"""Every shipped YAML composes; every experiment passes the check; the paper's recipe is the paper's."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from anchorcontext.config.check import problems
from anchorcontext.config.compose import config_folder, read_config, typed
from anchorcontext.config.files import is_local
from anchorcontext.config.schema import TrainConfig

CONFIGS = config_folder()
EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiment").glob("*.yaml"))
GROUP_FILES = sorted(path for path in CONFIGS.glob("*/*.yaml") if path.parent.name not in ("experiment", "mixture"))
MIXTURES = sorted(path.stem for path in (CONFIGS / "mixture").glob("*.yaml"))
PAPER = {
    "llama2_7b_64k": ("meta-llama/Llama-2-7b-hf", 65_536, 5e6),
    "llama2_7b_128k": ("meta-llama/Llama-2-7b-hf", 131_072, 1e7),
    "llama3_8b_128k": ("meta-llama/Meta-Llama-3-8B", 131_072, 1e7),
    "mistral_7b_v0_3_128k": ("mistralai/Mistral-7B-v0.3", 131_072, 1e7),
    "qwen1_5_1_8b_128k": ("Qwen/Qwen1.5-1.8B", 131_072, 1e7),
}
CURRENT = {"llama3_1_8b_128k": None, "qwen2_5_7b_128k": 1e7, "qwen3_8b_128k": 1e7}


@functools.cache
def compose(command: str, *arguments: str) -> Any:
    read = read_config(command, arguments)
    assert read is not None
    return typed(read[0])


@pytest.mark.parametrize("path", GROUP_FILES, ids=lambda path: f"{path.parent.name}={path.stem}")
def test_every_group_file_fits_the_schema(path: Path) -> None:
    values = OmegaConf.load(path)
    if "defaults" in values:
        values = OmegaConf.structured(compose("train", f"{path.parent.name}={path.stem}"))[path.parent.name]
    schema = OmegaConf.structured(TrainConfig())
    assert OmegaConf.merge(schema[path.parent.name], values)  # fails at a key or a type the schema lacks


@pytest.mark.parametrize("name", MIXTURES)
def test_every_mixture_passes_the_check_with_sources_of_its_names(name: str, tmp_path: Path) -> None:
    names = compose("pack", f"mixture={name}").data.mixture
    (tmp_path / "data").mkdir()
    (tmp_path / "tokenizer.json").touch()
    mine = {key: str(tmp_path) for key in ("tokenizer", "store", "index")} | {"window_tokens": 65_536}
    mine["sources"] = {source: {"path": str(tmp_path)} for source in names}
    (tmp_path / "data" / "mine.yaml").write_text(json.dumps(mine))
    config = compose("pack", "--config-dir", str(tmp_path), "data=mine", f"mixture={name}")
    assert problems(config) == []
    total = sum(config.data.mixture.values())
    assert total == pytest.approx(1 if total < 2 else 100, abs=0.05)
    upsampled = {source.keep_short_fraction for source in config.data.sources.values()}
    assert upsampled == ({0.1} if "upsampled" in name else {1.0})
    shortest = {source.min_document_tokens for source in config.data.sources.values()}
    assert shortest == ({None, 65_536} if name == "prolong_64k" else {None})


def lay_out(config: TrainConfig) -> None:
    """Put what the experiment reads where it reads it: a pack index, and a model that is a local path."""
    index = Path(config.data.index)
    index.mkdir(parents=True)
    manifest = {"window_tokens": config.data.window_tokens, "end_of_document": config.data.end_of_document}
    (index / "manifest.json").write_text(json.dumps(manifest))
    for path in {config.model.path, config.model.tokenizer}:
        if is_local(path):
            Path(path).mkdir(parents=True, exist_ok=True)
            for file in ("config.json", "tokenizer.json", "model.safetensors"):
                (Path(path) / file).write_text("{}")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_passes_the_check(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = compose("train", f"experiment={name}")
    ranks = 8 if name in PAPER | CURRENT else config.context_parallel.size
    lay_out(config)
    assert problems(config, world_size=ranks, has_gpu=lambda: True) == []


@pytest.mark.parametrize("name", [*PAPER, *CURRENT])
def test_recipe_of_the_paper(name: str) -> None:
    config = compose("train", f"experiment={name}")
    optim, training, deepspeed = config.optim, config.training, config.deepspeed
    assert (optim.lr, optim.betas, optim.weight_decay, optim.schedule) == (2e-5, [0.9, 0.95], 0.1, "constant")
    assert (training.windows_per_step, training.steps, training.precision) == (8, 2000, "bf16")
    assert (deepspeed.zero_stage, deepspeed.offload_optimizer, deepspeed.offload_parameters) == (3, "cpu", "cpu")
    assert config.attention.arm == "anchor"
    if name in PAPER:
        assert (config.model.path, config.data.window_tokens, config.rope.base) == PAPER[name]
    else:
        assert (config.data.window_tokens, config.rope.base) == (131_072, CURRENT[name])


@pytest.mark.parametrize("name", [*PAPER, *CURRENT])
def test_pack_makes_the_index_that_the_experiment_reads(name: str) -> None:
    text = (CONFIGS / "experiment" / f"{name}.yaml").read_text()
    (command,) = [line.split("anchorcontext pack ")[1] for line in text.splitlines() if "anchorcontext pack " in line]
    packed, trained = compose("pack", *command.split()).data, compose("train", f"experiment={name}").data
    assert packed == trained
