"""Checkpoints to evaluate: checked against the packed windows, then loaded as training loads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from anchorcontext.config.schema import RopeConfig
from anchorcontext.data.token_text import check_same_tokenizer
from anchorcontext.data.windows import PackedWindows
from anchorcontext.errors import ConfigError, Problem
from anchorcontext.evaluate.losses import LossOptions
from anchorcontext.models.build import DTYPES, load_model, read_config
from anchorcontext.models.checks import check_heads, check_model
from anchorcontext.models.planning import check_sharing
from anchorcontext.train.ranks import Ranks
from data_prep.errors import DataError

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")


def check_checkpoints(
    models: Mapping[str, str],
    index: str,
    windows: PackedWindows,
    options: LossOptions,
    precision: str,
    device: torch.device,
) -> None:
    """Whether every checkpoint has the windows' tokenizer, heads that the kernel takes, and can be shared by the ranks.

    A folder without any tokenizer is accepted if its vocabulary is large enough.

    Args:
        models: checkpoints by name.
        index: folder of the windows' index.

    Raises:
        ConfigError: every checkpoint with another tokenizer or too small a vocabulary.
    """
    problems = []
    for name, path in models.items():
        with _named(name):
            model = read_config(path).get_text_config()
            check_sharing(options.context_parallel, model, windows.window_tokens)
            check_heads(options.kernel, device, model, DTYPES[precision])
        vocab_size = model.vocab_size
        if vocab_size < windows.vocab_size:
            fix = f"has {vocab_size:,} tokens, {index} was packed with {windows.vocab_size:,}"
            problems.append(Problem(f"models.{name}", path, f"{fix}: pack with the model's own tokenizer"))
        elif _has_tokenizer(path):
            try:
                check_same_tokenizer(path, windows.tokenizer_hash)
            except DataError as error:
                problems.append(Problem(f"models.{name}", path, str(error)))
    if problems:
        raise ConfigError(problems)


def load_checkpoint(name: str, path: str, precision: str, kernel: str, ranks: Ranks) -> PreTrainedModel:
    """A checkpoint with its own rotary base, rotated in float32, ready to compute losses of windows."""
    with _named(name):
        model = load_model(path, rope=RopeConfig(), dtype=DTYPES[precision])
        model.eval()
        nn.Module.to(model, ranks.device)  # transformers' own `to` hides its signature
        check_model(model, kernel)
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
