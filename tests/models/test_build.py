"""Models as they are built: base, precision, weights; and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from anchorcontext.config.schema import RopeConfig
from anchorcontext.errors import ConfigError
from anchorcontext.models.build import checkpoint_layers, load_model, read_config
from anchorcontext.rope import FixedRotary, inverse_frequencies
from tests.models.tiny import tiny_config, tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_model().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("init", ["pretrained", "random"])
def test_base_and_length_are_set_before_it_is_built(folder: Path, dtype: torch.dtype, init: str) -> None:
    model = load_model(str(folder), init=init, rope=RopeConfig(base=5e6), dtype=dtype, max_positions=65_536)
    assert model.config.rope_parameters["rope_theta"] == 5e6
    assert model.config.max_position_embeddings == 65_536
    rotary = model.model.rotary_emb
    assert isinstance(rotary, FixedRotary)
    assert rotary.inv_freq.dtype == torch.float32
    torch.testing.assert_close(rotary.inv_freq.double(), inverse_frequencies(model.config), rtol=1e-6, atol=0)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    kept = load_model(str(folder), init=init, dtype=dtype)
    assert kept.config.rope_parameters["rope_theta"] == read_config(str(folder)).rope_parameters["rope_theta"]


def test_pretrained_weights_and_random_ones(folder: Path) -> None:
    saved = load_file(folder / "model.safetensors")
    loaded = dict(load_model(str(folder)).named_parameters())
    assert loaded.keys() == saved.keys()
    assert all(torch.equal(loaded[name], saved[name]) for name in saved)
    state = torch.get_rng_state()
    first, second, other = (load_model(str(folder), init="random", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.lm_head.weight, second.lm_head.weight)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_weights_that_are_missing_are_not_drawn_silently(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"lack 1 tensors .* model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(str(folder))


def test_no_model_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.path=.*nowhere"):
        load_model(str(tmp_path / "nowhere"))
    tiny_config().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"model\.path="):
        load_model(str(tmp_path))  # a config without weights
    for content in (
        "{}",
        "[]",
        '{"model_type": "llama", "hidden_size": "x"}',
        '{"model_type": 3}',
    ):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ConfigError, match=r"model\.path="):
            read_config(str(tmp_path))


def test_another_attention_cannot_take_float32_queries_beside_bf16_values(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"rope\.compute=bf16"):
        load_model(str(folder), attn="sdpa", dtype=torch.bfloat16)
    load_model(str(folder), attn="sdpa", dtype=torch.bfloat16, rope=RopeConfig(compute="bf16"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_checkpointing_changes_no_gradient(dtype: torch.dtype) -> None:
    def gradients(checkpointing: bool) -> list[torch.Tensor]:
        model: nn.Module = tiny_model().to(dtype)
        if checkpointing:
            checkpoint_layers(model)
        ids = torch.arange(40)[None]
        model(input_ids=ids, use_cache=False).logits.float().square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    for plain, recomputed in zip(gradients(False), gradients(True), strict=True):
        assert torch.equal(plain, recomputed)
