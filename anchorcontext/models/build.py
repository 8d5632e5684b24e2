"""Loads a transformers model the way this project trains and evaluates it."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from anchorcontext.config.schema import RopeConfig
from anchorcontext.context_parallel import keep_attention as kept_attention
from anchorcontext.errors import ConfigError
from anchorcontext.models.attention_interface import register
from anchorcontext.models.matmul import use_fast_linears
from anchorcontext.rope import replace_rotary, set_rope

DTYPES = {"bf16": torch.bfloat16, "float32": torch.float32}
"""The dtype of each `precision` a config can name."""


def load_model(
    path: str,
    *,
    init: str = "pretrained",
    rope: RopeConfig | None = None,
    attn: str = "anchor",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    max_positions: int | None = None,
) -> PreTrainedModel:
    """Build a causal language model with the given rotary base.

    Args:
        path: folder or hub name, in transformers format.
        init: `pretrained` loads the weights; `random` draws them from `seed`, from config.json alone.
        rope: base and precision of rotary positions; None keeps the model's own base.
        attn: attention implementation; `anchor` is this project's.
        max_positions: trained length, in rows; None keeps the model's.

    Raises:
        ConfigError: no model at `path`, weights that are missing, or positions that are not supported.
    """
    rope = rope or RopeConfig()
    if attn == "anchor":
        register()
    elif rope.compute == "float32" and dtype != torch.float32:
        raise ValueError(
            f"attn={attn!r} cannot take float32 queries and keys with {dtype} values: set rope.compute=bf16"
        )
    config = read_config(path)
    set_rope(config, rope.base, max_positions)
    model = _random(config, attn, seed) if init == "random" else _pretrained(path, config, attn, dtype)
    replace_rotary(model, rope.compute)  # before the cast, which would round the original's frequencies
    model.to(dtype)  # type: ignore[arg-type]
    use_fast_linears(model)
    return model


def read_config(path: str) -> PretrainedConfig:
    """The config.json of a model.

    Raises:
        ConfigError: nothing there that transformers can read.
    """
    try:
        return AutoConfig.from_pretrained(path)
    except Exception as error:  # malformed values raise all kinds of errors
        raise _unreadable(path, error) from error


def checkpoint_layers(model: PreTrainedModel, *, keep_attention: bool = False) -> None:
    """Recompute each layer's activations in the backward pass instead of keeping them.

    Args:
        keep_attention: keep each layer's attention output and logsumexp nevertheless.
    """
    options: dict[str, Any] = {"use_reentrant": False}
    if keep_attention:
        options["context_fn"] = kept_attention
    if hasattr(model, "activation_checkpointing_enable"):  # its name since transformers 5.24
        model.activation_checkpointing_enable(options)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)


def _random(config: PretrainedConfig, attn: str, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attn)


def _pretrained(path: str, config: PretrainedConfig, attn: str, dtype: torch.dtype) -> PreTrainedModel:
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path, config=config, dtype=dtype, attn_implementation=attn, output_loading_info=True
        )
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    model, report = loaded
    absent = sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])
    if absent:
        raise ConfigError.of(
            "model.path",
            path,
            f"its weights lack {len(absent)} tensors of the architecture, such as {absent[0]}; "
            "model.init=random initializes all of them",
        )
    return model


def _unreadable(path: str, error: Exception) -> ConfigError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    reason = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    return ConfigError.of(
        "model.path", path, f"give a folder or hub name of a causal language model that can be read ({reason})"
    )
