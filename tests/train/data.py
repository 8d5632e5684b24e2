"""A small packed data set with a model folder, on disk as a user would have them."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.data_prep.corpus import make_index
from tests.models.tiny import tiny_config
from tests.train.fakes import SETTINGS, train_config

WINDOW_TOKENS = 96


@dataclass(frozen=True)
class TinyData:
    """Folders of a model (config and tokenizer, a token a byte) and of a pack index."""

    model: Path
    index: Path

    def settings(self, run_folder: Path, **changes: Any) -> dict[str, Any]:
        """Config values of a short run on this data: six steps, a checkpoint every two."""
        return {
            "model__path": str(self.model),
            "model__tokenizer": str(self.model),
            "model__init": "random",
            "data__index": str(self.index),
            "data__window_tokens": WINDOW_TOKENS,
            "rope__base": 5e4,
            "training__steps": 6,
            "training__windows_per_step": 4,
            "training__save_every_steps": 2,
            "run__folder": str(run_folder),
            **changes,
        }

    def config(self, run_folder: Path, **changes: Any) -> Any:
        return train_config(**self.settings(run_folder, **changes))

    def overrides(self, run_folder: Path, **changes: Any) -> list[str]:
        """The same as a command line."""
        settings = {**SETTINGS, **self.settings(run_folder, data__store="unused", **changes)}
        settings.pop("attention__arm")  # the group's default
        return [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]


def make_data(folder: Path, seed: int = 0) -> TinyData:
    """Sixty documents, packed; the model's folder is that of its tokenizer."""
    letters = random.Random(seed)
    texts = ["".join(letters.choices("abcde ", k=letters.randint(3, 180))) for _ in range(60)]
    index = make_index(folder, texts, window_tokens=WINDOW_TOKENS, held_out_fraction=0.1)
    tiny_config(vocab_size=258, bos_token_id=0, eos_token_id=1).save_pretrained(folder / "model")
    for path in (folder / "tokenizer").iterdir():
        shutil.copy(path, folder / "model")
    return TinyData(folder / "model", index)
