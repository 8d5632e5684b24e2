"""Tiny random models of many architectures."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 131,
    "max_position_embeddings": 512,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def tiny_config(model_type: str = "llama", **changes: Any) -> PretrainedConfig:
    return AutoConfig.for_model(model_type, **{**SIZES, **changes})


def tiny_model(model_type: str = "llama", *, attn: str = "sdpa", seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A random model in float32, its weights large enough for logits that differ."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = tiny_config(model_type, **{"initializer_range": 0.1, **changes})
        return AutoModelForCausalLM.from_config(config, attn_implementation=attn)
