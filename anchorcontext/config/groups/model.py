"""Group `model`: the base model and its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from omegaconf import MISSING

from anchorcontext.config.files import model_problems, tokenizer_problems, weights_problems
from anchorcontext.config.rules import one_of
from anchorcontext.errors import Problem


@dataclass
class ModelConfig:
    """The base model and its tokenizer."""

    path: str = MISSING
    """Folder or hub name of the base model, in transformers format."""
    tokenizer: str = "${model.path}"
    """Folder or hub name of the model's tokenizer."""
    init: str = one_of(("pretrained", "random"), "pretrained")
    """`pretrained` loads the weights; `random` initializes the model that `path`/config.json describes."""

    def problems(self) -> Iterator[Problem]:
        """Local folders that lack a config, weights or a tokenizer."""
        yield from model_problems("model.path", self.path)
        if self.init == "pretrained":
            yield from weights_problems("model.path", self.path)
        if self.tokenizer != self.path or Path(self.path).expanduser().is_dir():
            yield from tokenizer_problems("model.tokenizer", self.tokenizer)
