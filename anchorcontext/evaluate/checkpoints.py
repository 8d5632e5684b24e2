"""Checkpoints to evaluate: checked against the packed windows, then loaded as training loads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from anchorcontext.config.errors import ConfigError, Problem
from anchorcontext.config.schema import EvaluateConfig, RopeConfig
from anchorcontext.data.token_text import check_same_tokenizer
from anchorcontext.data.windows import PackedWindows
from anchorcontext.models.build import DTYPES, load_model, read_config
from anchorcontext.models.checks import check_heads, check_model
from anchorcontext.models.planning import check_sharing
from anchorcontext.train.ranks import Ranks
from data_prep.errors import DataError

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")


def check_checkpoints(config: EvaluateConfig, windows: PackedWindows, device: torch.device) -> None:
    """Whether every checkpoint reads the windows' token ids as they are meant, by a kernel that takes its heads.

    A folder without any tokenizer is believed, if its vocabulary is large enough.

    Raises:
        ConfigError: every checkpoint with another tokenizer or too small a vocabulary.
    """
    problems = []
    for name, path in config.models.items():
        with _named(name):
            model = read_config(path).get_text_config()
            check_sharing(config.context_parallel, model, windows.window_tokens)
            check_heads(config.attention.kernel, device, model, DTYPES[config.precision])
        vocab_size = model.vocab_size
        if vocab_size < windows.vocab_size:
            fix = f"has {vocab_size:,} tokens, {config.data.index} was packed with {windows.vocab_size:,}"
            problems.append(Problem(f"models.{name}", path, f"{fix}: pack with the model's own tokenizer"))
        elif _has_tokenizer(path):
            try:
                check_same_tokenizer(path, windows.tokenizer_hash)
            except DataError as error:
                problems.append(Problem(f"models.{name}", path, str(error)))
    if problems:
        raise ConfigError(problems)


def load_checkpoint(config: EvaluateConfig, name: str, ranks: Ranks) -> PreTrainedModel:
    """The model of that name, its rotary base its own and rotated in float32, ready to compute losses of windows."""
    with _named(name):
        model = load_model(config.models[name], rope=RopeConfig(), dtype=DTYPES[config.precision])
        model.eval()
        nn.Module.to(model, ranks.device)  # transformers' own `to` hides its signature
        check_model(model, config.attention.kernel)
    return model


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Problems of a model under the key that it has in this command's config."""
    try:
        yield
    except ConfigError as error:
        problems = error.problems
        renamed = [replace(each, key=f"models.{name}") if each.key == "model.path" else each for each in problems]
        raise ConfigError(renamed) from error


def _has_tokenizer(path: str) -> bool:
    folder = Path(path).expanduser()
    return not folder.is_dir() or any((folder / name).is_file() for name in _TOKENIZER_FILES)
