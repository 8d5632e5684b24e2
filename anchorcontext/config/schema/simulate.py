"""Config of `anchorcontext simulate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from omegaconf import MISSING

from anchorcontext.config.files import index_problems
from anchorcontext.config.groups.attention import AttentionConfig
from anchorcontext.config.groups.context_parallel import EXCHANGES, POLICIES, ContextParallelConfig
from anchorcontext.config.groups.data import DataConfig
from anchorcontext.config.rules import Command, Job, items_from, number, one_of
from anchorcontext.errors import Problem


@dataclass
class SimulateConfig(Command):
    """Config of `anchorcontext simulate`."""

    unread = frozenset({"data.sources", "data.index", "data.store", "data.tokenizer", "data.window_tokens"})

    data: DataConfig = field(default_factory=DataConfig)
    """`data.index`, if given, is simulated as the mix `index`."""
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    context_parallel: ContextParallelConfig = field(default_factory=ContextParallelConfig)
    """Only `costs`, `head_groups` and `max_gathered_rows` are read; the rest is what is simulated."""
    split: str = one_of(("train", "held_out"), "train")
    """Split of `data.index`: `train` or `held_out`."""
    mixes: list[str] = field(default_factory=list, metadata=items_from(("web", "long", "8K", "one_document")))
    """Made-up mixes of document lengths to simulate."""
    window_tokens: int = number(131072, 1)
    """Rows per window of these mixes."""
    windows: int = number(10, 0)
    """Windows of each mix, drawn by their number; and the first windows of `data.index` (0: all)."""
    ranks: list[int] = field(default_factory=list)
    """Numbers of ranks that share a window, each simulated and at least 1."""
    policies: list[str] = field(default_factory=list, metadata=items_from(POLICIES))
    """Policies to simulate: which rank holds which rows."""
    exchanges: list[str] = field(default_factory=list, metadata=items_from(EXCHANGES))
    """Exchanges to simulate: how keys and values move between ranks."""
    output: str = MISSING
    """Folder for the CSV, the JSON and the plot."""

    def problems(self, job: Job) -> Iterator[Problem]:
        if self.data.index != MISSING:
            yield from index_problems(self.data)
        elif not self.mixes:
            fix = "nothing to simulate: name mixes, such as [web,8K], or give data.index=FOLDER"
            yield Problem("mixes", "[]", fix)
        for key in ("ranks", "policies", "exchanges"):
            if not getattr(self, key):
                yield Problem(key, "[]", "nothing to simulate: give at least one")
        if self.windows == 0 and self.mixes:
            yield Problem("windows", 0, "must be at least 1; for all windows of data.index, give 'mixes=[]'")
        if any(ranks < 1 for ranks in self.ranks):
            yield Problem("ranks", self.ranks, "each must be at least 1")
