"""Group `context_parallel`: ranks that share a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from anchorcontext.config.rules import number, one_of
from anchorcontext.errors import Problem

EXCHANGES = ("gather", "ring", "ulysses", "ring_flash_attn")
POLICIES = ("auto", "contiguous", "chunks", "hybrid", "zigzag")


@dataclass
class CostsConfig:
    """What planning goes by: the speeds of one rank, of which only the ratio matters, and shapes.

    Shapes that are null are the model's (in `simulate`: Llama-3-8B's in BF16).
    """

    flops_per_second: float = number(500e12, 0, open_low=True)
    """FLOP per second that the attention kernel reaches on one rank's device, not the data sheet's figure."""
    bytes_per_second: float = number(300e9, 0, open_low=True)
    """Bytes per second that one rank receives from the others while all of them receive."""
    query_heads: int | None = number(None, 1)
    """Query heads of a layer. Null: the model's (in `simulate`: 32)."""
    key_heads: int | None = number(None, 1)
    """Key and value heads of a layer. Null: the model's (in `simulate`: 8)."""
    head_dim: int | None = number(None, 1)
    """Elements of one head. Null: the model's (in `simulate`: 128)."""
    bytes_per_element: int | None = number(None, 1)
    """Bytes of one key or value element in transfer: 2 in bf16, 4 in float32. Null: by the precision."""


@dataclass
class ContextParallelConfig:
    """Ranks that share a window."""

    size: int = number(1, 1)
    """Ranks per window."""
    exchange: str = one_of(EXCHANGES, "gather")
    """How ranks exchange keys and values: `gather` collects the rows that each rank needs, `ring` passes them
    on in turns, `ulysses` swaps rows for heads, `ring_flash_attn` calls that package (GPU only)."""
    policy: str = one_of(POLICIES, "auto")
    """Which rank holds which rows: `contiguous`, `chunks`, `hybrid`, `zigzag`, or `auto` for the cheapest."""
    max_gathered_rows: int | None = number(None, 0)
    """The most key and value rows of other ranks that a rank may hold at once. Plans that need more are not
    chosen, and a window that has no other plan is refused. Null: no limit."""
    costs: CostsConfig = field(default_factory=CostsConfig)
    """What planning goes by: the speeds of one rank, of which only the ratio matters, and shapes."""
    head_groups: int | None = number(None, 1)
    """Groups of key heads, computed in turn, each while the next group's rows are in transfer; must
    divide the key heads. Null: 1 on a CPU and for `ring`, else up to 4. The result is the same for any number."""
    check_plans: bool = False
    """Compare the ranks' context plans before every step; for debugging."""

    def problems(self, world_size: int) -> Iterator[Problem]:
        """A size that does not divide the job, and a policy that the exchange rules out."""
        if self.size >= 1 and world_size % self.size:
            fits = [str(divisor) for divisor in range(1, world_size + 1) if world_size % divisor == 0]
            ranks = "1 rank" if world_size == 1 else f"{world_size} ranks"
            choices = " or ".join(fits)
            fix = f"must divide the {ranks} of this job: choose {choices}, or start a multiple of {self.size} ranks"
            yield Problem("context_parallel.size", self.size, fix)
        if self.exchange in ("ulysses", "ring_flash_attn") and self.policy not in ("auto", "contiguous"):
            fix = f"context_parallel.exchange={self.exchange} needs contiguous (or auto)"
            yield Problem("context_parallel.policy", self.policy, fix)
