"""Windows, configs and ranks for tests of training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from anchorcontext.config.schema import TrainConfig
from anchorcontext.data.windows import Window
from anchorcontext.train.ranks import Ranks

VOCABULARY = 131
ANCHOR = 1


SETTINGS: dict[str, Any] = {
    "attention__arm": "anchor",
    "data__window_tokens": 96,
    "optim__lr": 1e-3,
    "optim__max_grad_norm": 0.0,
    "training__steps": 6,
    "training__windows_per_step": 12,
    "training__precision": "float32",
    "training__loss_chunk_rows": 50,
    "run__name": "test",
}
"""Config values of tests, `section__key`."""


def train_config(**changes: Any) -> TrainConfig:
    """A training config of `SETTINGS` and changes to them."""
    config = TrainConfig()
    for key, value in {**SETTINGS, **changes}.items():
        section, name = key.split("__")
        assert hasattr(getattr(config, section), name), f"no config key {section}.{name}"
        setattr(getattr(config, section), name, value)
    return config


@dataclass
class FakeWindows:
    """Windows in memory, of unequal numbers of pieces and of padding rows."""

    window_tokens: int = 96
    count: int = 12
    index_hash: str = "fake"
    anchor_id: int = ANCHOR
    vocab_size: int = VOCABULARY
    windows: list[Window] = field(init=False)

    def __post_init__(self) -> None:
        random = np.random.default_rng(0)
        self.windows = [self._window(random, number) for number in range(self.count)]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Window:
        return self.windows[index]

    def attention_work(self, numbers: np.ndarray) -> np.ndarray:
        return np.array([sum(rows**2 for rows in self.windows[number].piece_lengths) for number in numbers])

    def _window(self, random: np.random.Generator, number: int) -> Window:
        used = self.window_tokens if number % 3 else self.window_tokens // 4  # every third is mostly padding
        cuts = np.sort(random.choice(np.arange(1, used), size=number % 4, replace=False))
        lengths = np.diff([0, *cuts, used]).tolist()
        starts = [bool(flag) for flag in random.integers(0, 2, len(lengths))]
        if number == 5:  # a window without a valid label: single anchor rows and padding
            lengths, starts = [1, 1], [True, True]
        ids = torch.full((self.window_tokens,), self.anchor_id)
        ids[:used] = torch.from_numpy(random.integers(2, self.vocab_size, used))
        ids[np.cumsum([0, *lengths[:-1]])] = self.anchor_id
        return Window(
            input_ids=ids,
            piece_lengths=lengths,
            document_ids=list(range(len(lengths))),
            starts=starts,
            ends=[False] * len(lengths),
            prefix_lengths=[1] * len(lengths),
            piece_sources=[0] * len(lengths),
        )


def alone(context_rank: int = 0, **changes: Any) -> Ranks:
    """A world of one rank, without a process group."""
    values: dict[str, Any] = {
        "rank": context_rank,
        "world_size": 1,
        "local_rank": 0,
        "device": torch.device("cpu"),
        "context_size": 1,
        "context_group": None,
        "threads": 1,
    }
    return Ranks(**{**values, **changes})
