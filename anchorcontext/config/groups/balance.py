"""Section `balance`: the ranks for which an index's report tells how evenly work is divided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from anchorcontext.config.rules import number
from anchorcontext.errors import Problem


@dataclass
class BalanceConfig:
    """The ranks whose balance the report of an index shows, and what a row costs them."""

    windows_per_step: int = number(8, 1, 2**31 - 1)
    """Windows per step."""
    data_ranks: int | None = number(None, 1, 2**31 - 1)
    """Data-parallel ranks that share them; must divide windows_per_step. Null: one per window."""
    row_pairs: int = number(25_000, 0, 2**31 - 1)
    """What everything but attention costs per row, in query-key pairs: about six times a Llama's width,
    which is 4,096 for 7B and 8B."""
    context_ranks: list[int] = field(default_factory=lambda: [2, 4, 8])
    """Numbers of ranks that share a window, each at least 1."""
    sample_windows: int = number(32, 1, 2**31 - 1)
    """Windows, spread over the split, that are planned for them."""

    def problems(self) -> Iterator[Problem]:
        """Ranks that cannot share a step or a window."""
        ranks, windows = self.data_ranks, self.windows_per_step
        if ranks is not None and ranks >= 1 and windows % ranks:
            fix = f"must divide balance.windows_per_step={windows}, so that every rank takes the same number of windows"
            yield Problem("balance.data_ranks", ranks, fix)
        if any(count < 1 for count in self.context_ranks):
            yield Problem("balance.context_ranks", self.context_ranks, "each must be at least 1")
