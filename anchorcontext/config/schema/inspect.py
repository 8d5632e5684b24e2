"""Config of `anchorcontext inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

from anchorcontext.config.files import index_problems
from anchorcontext.config.groups.attention import AttentionConfig
from anchorcontext.config.groups.balance import BalanceConfig
from anchorcontext.config.groups.data import DataConfig
from anchorcontext.config.rules import Command, Job, how_to_give, number, one_of
from anchorcontext.errors import Problem


@dataclass
class InspectConfig(Command):
    """Config of `anchorcontext inspect`."""

    unread = frozenset({"data.sources", "data.index", "data.store", "data.tokenizer", "data.window_tokens"})

    data: DataConfig = field(default_factory=DataConfig)
    """`data.index` is what is shown; without it, `verify` reads the token stores in `data.store`."""
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    split: str = one_of(("train", "held_out"), "train")
    """Split of the index: `train` or `held_out`."""
    window: int = number(0, 0)
    """Number of the window in its split, counted from 0."""
    boundary_tokens: int = number(8, 0)
    """Tokens shown on each side of a boundary."""
    max_pieces: int = number(20, 0)
    """Pieces shown in full; the rest are counted."""
    picture: str | None = None
    """File for the picture of the mask (.png, .svg or .pdf). Null: no picture."""
    browse: bool = False
    """Walk through the split in the terminal, boundary by boundary, starting at `window`; `--browse` for short."""
    verify: bool = False
    """Only read the index and its token stores (without data.index: those in data.store) to the last byte,
    and report what is wrong; `--verify` for short."""
    statistics: str | None = None
    """File for the page on the whole index, with plots (.html). Null: no page."""
    balance: BalanceConfig = field(default_factory=BalanceConfig)

    def problems(self, job: Job) -> Iterator[Problem]:
        if self.data.index == MISSING and (not self.verify or self.data.store == MISSING):
            yield Problem("data.index", MISSING, how_to_give("data.index"))
        yield from index_problems(self.data)
        yield from _suffix_problems("picture", self.picture, (".png", ".svg", ".pdf"))
        yield from _suffix_problems("statistics", self.statistics, (".html",))
        yield from self.balance.problems()


def _suffix_problems(key: str, path: str | None, suffixes: tuple[str, ...]) -> Iterator[Problem]:
    if path is not None and Path(path).suffix not in suffixes:
        yield Problem(key, path, f"must end in {' or '.join(suffixes)}")
