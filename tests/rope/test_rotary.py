"""The float32 rotary module: its precision, its steadiness, and every layout of angles it meets."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, CohereConfig, GptOssConfig, LlamaConfig, PretrainedConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from anchorcontext.errors import ConfigError
from anchorcontext.rope import FixedRotary, check_frequencies, frequency_digest, inverse_frequencies, replace_rotary

HEAD_DIMS = 128
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
}


def rotary(base: float = 5e6, compute: str = "float32") -> FixedRotary:
    config = LlamaConfig(head_dim=HEAD_DIMS, num_attention_heads=1, rope_parameters={"rope_theta": base})
    return FixedRotary(LlamaRotaryEmbedding(config), compute)


def tiny(config: PretrainedConfig) -> nn.Module:
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager")


def logits(module: FixedRotary, query: Tensor, key: Tensor, distance: int, shift: int) -> Tensor:
    """Dot products of rotated rows [N, 1, 1, D], query at shift + distance, key at shift, rounded to bf16 once."""
    query_tables = module(query, torch.tensor([[shift + distance]]))
    key_tables = module(key, torch.tensor([[shift]]))
    query, _ = apply_rotary_pos_emb(query, query, *query_tables)
    key, _ = apply_rotary_pos_emb(key, key, *key_tables)
    return (query.bfloat16().double() * key.bfloat16().double()).sum(-1).flatten()


def error_at_64k(module: FixedRotary) -> float:
    """Root mean square error of logits of unit deviation, 64K rows apart, against float64."""
    torch.manual_seed(0)
    query, key = torch.randn(2, 512, 1, 1, HEAD_DIMS).bfloat16()
    query = (query.float() / HEAD_DIMS**0.5).bfloat16()
    exact = inverse_frequencies(LlamaConfig(head_dim=HEAD_DIMS, rope_parameters={"rope_theta": 5e6}))
    angles = 65_536 * torch.cat((exact, exact))
    first, second = query.double().split(HEAD_DIMS // 2, -1)
    turned = query.double() * angles.cos() + torch.cat((-second, first), -1) * angles.sin()
    expected = (turned * key.double()).sum(-1).flatten()
    return (logits(module, query, key, 65_536, 0) - expected).square().mean().sqrt().item()


def test_precision_against_float64() -> None:
    # published ladder: 0.0023 rotated in float32, 0.0035 with bf16 tables, 0.79 with rounded frequencies
    assert error_at_64k(rotary()) < 0.004
    assert error_at_64k(rotary()) < error_at_64k(rotary(compute="bf16"))
    rounded = rotary()
    rounded.inv_freq.copy_(rounded.inv_freq.bfloat16())
    assert error_at_64k(rounded) > 0.1


def test_shift_invariance() -> None:
    torch.manual_seed(1)
    query, key = torch.randn(2, 256, 1, 1, HEAD_DIMS)
    module = rotary()
    reference = logits(module, query, key, 1000, 0)
    for shift in (16, 4096, 60_000):
        difference = logits(module, query, key, 1000, shift) - reference
        assert difference.std() < 0.005 * reference.std()


@pytest.mark.parametrize("cast", ["bf16", "half", "to", "there_and_back"])
def test_frequencies_survive_casts(cast: str) -> None:
    model = tiny(LlamaConfig(**SIZES))
    module = replace_rotary(model)
    before = frequency_digest(model)
    match cast:
        case "bf16":
            model.bfloat16()
        case "half":
            model.half()
        case "to":
            model.to(torch.bfloat16).to("cpu", torch.float16)
        case "there_and_back":
            model.double().float()
    assert module.inv_freq.dtype == torch.float32
    assert frequency_digest(model) == before
    check_frequencies(model)
    assert not any("inv_freq" in name for name in model.state_dict())


@pytest.mark.parametrize(
    ("config", "layout"),
    [
        (LlamaConfig(**SIZES), "halves"),
        (CohereConfig(**SIZES), "neighbours"),
        (GptOssConfig(**SIZES, head_dim=16, num_local_experts=2, rope_parameters={"rope_theta": 1e4}), "once"),
    ],
)
def test_tables_equal_the_originals(config: PretrainedConfig, layout: str) -> None:
    model = tiny(config)
    original = model.model.rotary_emb
    module = replace_rotary(model)
    assert module.angle_layout == layout
    positions = torch.randint(0, 100_000, (1, 64))
    for ours, theirs in zip(module(torch.empty(1), positions), original(torch.empty(1), positions), strict=True):
        assert torch.equal(ours, theirs)


def test_bf16_reproduces_transformers() -> None:
    config = LlamaConfig(**SIZES)
    original = LlamaRotaryEmbedding(config)
    positions, x = torch.arange(500)[None], torch.empty(1, dtype=torch.bfloat16)
    for ours, theirs in zip(FixedRotary(original, "bf16")(x, positions), original(x, positions), strict=True):
        assert ours.dtype == torch.bfloat16
        assert torch.equal(ours, theirs)
    assert FixedRotary(original)(x, positions)[0].dtype == torch.float32


def test_a_base_set_too_late_is_found() -> None:
    model = tiny(LlamaConfig(**SIZES))
    replace_rotary(model)
    model.config.rope_parameters = {**model.config.rope_parameters, "rope_theta": 5e6}
    with pytest.raises(RuntimeError, match="changed after the model was built"):
        check_frequencies(model)


def test_rotary_of_unknown_form_is_refused() -> None:
    class Spiral(LlamaRotaryEmbedding):
        def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
            cos, sin = super().forward(x, position_ids)
            return cos.flip(-1), sin.flip(-1)

    with pytest.raises(ConfigError, match="Spiral"):
        FixedRotary(Spiral(LlamaConfig(**SIZES)))
