"""Rotary parameters of a config, and the inverse frequencies they stand for in closed form.

A model reads `config.rope_parameters` once, when it is built; assigning a base later changes
nothing. So `set_rope` completes the config first, and `inverse_frequencies` says in float64 what
the built model must then hold.

Formulas: default theta_i = base^(-2i/d) (arXiv 2104.09864); linear divides all of them by a factor
(2306.15595); llama3 divides long wavelengths, keeps short ones and blends between (Llama 3.1's
reference code); yarn blends along a ramp over dimensions (2309.00071), as transformers computes it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig

from anchorcontext.errors import ConfigError

FIXED_TYPES = ("default", "linear", "llama3", "yarn")
"""Types whose frequencies depend on the config alone."""

_RUN_TIME_TYPES = {
    "dynamic": "dynamic NTK chooses its base from the longest position seen at run time",
    "longrope": "LongRoPE switches its factors by the longest position seen at run time",
}


def set_rope(config: PretrainedConfig, base: float | None = None, max_positions: int | None = None) -> None:
    """Complete `config.rope_parameters` in place, before the model is built.

    Args:
        base: theta; None keeps the config's.
        max_positions: the trained length, as `max_position_embeddings`; None keeps the config's. A
            scaled type keeps the original length and factor it was made for.

    Raises:
        ConfigError: a model without rotary positions, with one set per layer type, or of a type whose
            frequencies are not fixed.
    """
    parameters = _parameters(config)
    rope_type = parameters["rope_type"]
    if rope_type == "yarn" and parameters.get("factor") is None:  # else it would follow max_position_embeddings
        parameters["factor"] = config.max_position_embeddings / parameters["original_max_position_embeddings"]
    if base is not None:
        parameters["rope_theta"] = float(base)
    config.rope_parameters = parameters
    if max_positions is not None:
        config.max_position_embeddings = max_positions


def inverse_frequencies(config: PretrainedConfig) -> Tensor:
    """Closed-form inverse frequencies, float64 [rotary dimensions / 2], radians per position.

    Raises:
        ConfigError: as `set_rope`.
    """
    parameters = _parameters(config)
    dims = rotary_dims(config)
    frequencies = parameters["rope_theta"] ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    match parameters["rope_type"]:
        case "linear":
            return frequencies / parameters["factor"]
        case "llama3":
            return _llama3(frequencies, parameters)
        case "yarn":
            return _yarn(frequencies, parameters, dims)
    return frequencies


def rotary_dims(config: PretrainedConfig) -> int:
    """Dimensions of a head that rotate."""
    head_dims = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(head_dims * config.rope_parameters.get("partial_rotary_factor", 1.0))


def _parameters(config: PretrainedConfig) -> dict[str, Any]:
    """A complete copy of the config's rotary parameters, of a fixed type."""
    if getattr(config, "rope_parameters", None) or getattr(config, "rope_theta", None):
        config.standardize_rope_params()
    parameters = dict(getattr(config, "rope_parameters", None) or {})
    model = f"a {config.model_type} model"
    if not parameters:
        raise _refusal(model, "it has no rotary positions; choose a model that has them")
    if "rope_type" not in parameters or any(isinstance(value, dict) for value in parameters.values()):
        raise _refusal(model, "it has rotary parameters of its own for each layer type, which is not supported")
    rope_type = parameters["rope_type"]
    if rope_type in _RUN_TIME_TYPES:
        raise _refusal(
            f"{model} with rope_type={rope_type!r}",
            f"{_RUN_TIME_TYPES[rope_type]}, so ranks would differ; set rope_parameters in its config.json "
            f"to one of {', '.join(FIXED_TYPES)}",
        )
    if rope_type not in FIXED_TYPES:
        raise _refusal(f"{model} with rope_type={rope_type!r}", f"supported are {', '.join(FIXED_TYPES)}")
    return parameters


def _refusal(value: str, fix: str) -> ConfigError:
    return ConfigError.of("model.path", value, fix)


def _llama3(frequencies: Tensor, parameters: dict[str, Any]) -> Tensor:
    factor, low, high = (parameters[name] for name in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = parameters["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)  # 1: short wavelength, as it was; 0: divided
    return frequencies * (kept + (1 - kept) / factor)


def _yarn(frequencies: Tensor, parameters: dict[str, Any], dims: int) -> Tensor:
    base, factor = parameters["rope_theta"], parameters["factor"]
    length = parameters["original_max_position_embeddings"]

    def pair_turning(turns: float) -> float:
        """The pair that makes `turns` turns over the original length."""
        return dims * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))

    first = pair_turning(parameters.get("beta_fast") or 32)
    last = pair_turning(parameters.get("beta_slow") or 1)
    if parameters.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dims - 1)
    width = last - first or 0.001
    divided = ((torch.arange(dims // 2, dtype=torch.float64) - first) / width).clamp(0, 1)
    return frequencies * ((1 - divided) + divided / factor)
