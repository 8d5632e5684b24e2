"""Closed-form frequencies against transformers' own and against published figures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import Gemma3TextConfig, GPT2Config, LlamaConfig, PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from anchorcontext.errors import ConfigError
from anchorcontext.rope import inverse_frequencies, set_rope

LLAMA2 = {"hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 4096}
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_theta": 5e5,
}


def llama(**rope: Any) -> LlamaConfig:
    return LlamaConfig(**LLAMA2, rope_parameters={"rope_theta": 1e4, **rope})


def counts(config: PretrainedConfig, factor: float) -> tuple[int, int, int]:
    """Pairs kept, blended and divided."""
    plain = inverse_frequencies(
        LlamaConfig(**LLAMA2, rope_parameters={"rope_theta": config.rope_parameters["rope_theta"]})
    )
    ratio = inverse_frequencies(config) / plain
    kept, divided = (ratio > 1 - 1e-9).sum().item(), (ratio < 1 / factor + 1e-9).sum().item()
    return kept, len(ratio) - kept - divided, divided


@pytest.mark.parametrize(
    "rope",
    [
        {},
        {"rope_theta": 5e6},
        {"rope_type": "linear", "factor": 4.0},
        LLAMA3_SCALING,
        {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096},
        {
            "rope_type": "yarn",
            "factor": 40.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
            "beta_fast": 16,
        },
    ],
)
def test_equals_transformers(rope: dict[str, Any]) -> None:
    config = llama(**rope)
    theirs = LlamaRotaryEmbedding(config).inv_freq.double()
    torch.testing.assert_close(inverse_frequencies(config), theirs, rtol=1e-5, atol=0)


def test_partial_rotation() -> None:
    config = llama(partial_rotary_factor=0.5)
    assert inverse_frequencies(config).shape == (32,)


def test_published_figures() -> None:
    yarn = llama(rope_type="yarn", factor=16.0, original_max_position_embeddings=4096)
    assert counts(yarn, 16) == (21, 25, 18)
    assert (inverse_frequencies(yarn) / inverse_frequencies(llama()))[30].item() == pytest.approx(0.6394, abs=5e-5)
    assert ROPE_INIT_FUNCTIONS["yarn"](yarn)[1] == pytest.approx(1.2773, abs=5e-5)
    llama3 = llama(**LLAMA3_SCALING)
    assert counts(llama3, 8) == (29, 6, 29)
    plain = inverse_frequencies(llama(rope_theta=5e5))
    assert (inverse_frequencies(llama3) / plain)[31].item() == pytest.approx(0.4935, abs=5e-5)


def test_set_rope_completes_before_building() -> None:
    config = llama(**LLAMA3_SCALING)
    set_rope(config, base=4e6, max_positions=65_536)
    assert config.rope_parameters == {**LLAMA3_SCALING, "rope_theta": 4e6}
    assert config.max_position_embeddings == 65_536
    assert inverse_frequencies(config)[0] == 1


def test_length_does_not_move_a_scaled_type() -> None:
    # the original length and a missing factor would both follow max_position_embeddings
    config = LlamaConfig(
        hidden_size=4096,
        num_attention_heads=32,
        max_position_embeddings=32_768,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": None,
            "original_max_position_embeddings": 4096,
        },
    )
    set_rope(config, max_positions=131_072)
    assert config.rope_parameters["factor"] == 8.0
    assert config.rope_parameters["original_max_position_embeddings"] == 4096


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (llama(rope_type="dynamic", factor=2.0), "dynamic NTK"),
        (
            llama(
                rope_type="longrope",
                factor=4.0,
                short_factor=[1.0] * 64,
                long_factor=[2.0] * 64,
                original_max_position_embeddings=4096,
            ),
            "LongRoPE",
        ),
        (Gemma3TextConfig(), "each layer type"),
        (GPT2Config(), "no rotary positions"),
    ],
)
def test_refused_by_name(config: PretrainedConfig, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        set_rope(config, base=1e6)
