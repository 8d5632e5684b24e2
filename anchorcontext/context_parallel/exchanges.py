"""The exchanges as planning sees them: what each one receives, holds, costs and does.

A new exchange is an entry of `EXCHANGES`. Moving rows is `exchange.py`, computing `executor.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from anchorcontext.context_parallel.costs import CostModel
from anchorcontext.context_parallel.heads import rows_of_heads
from anchorcontext.context_parallel.rows import SegmentedRows
from anchorcontext.context_parallel.sharding import Sharding
from anchorcontext.context_parallel.stages import Stage, gather_stage, ring_stages


@dataclass(frozen=True)
class Exchange:
    """One way to bring keys and values to queries. Arrays are [ranks]."""

    stages: Callable[[Sharding, int], tuple[Stage, ...]]
    """What a rank does, step by step."""
    rows_received: Callable[[Sharding, CostModel], np.ndarray]
    """Key and value rows each rank receives in a forward pass."""
    rows_gathered: Callable[[Sharding, CostModel], np.ndarray]
    """The most received rows each rank holds at one time: what `max_gathered_rows` caps."""
    seconds: Callable[[CostModel, np.ndarray, np.ndarray], np.ndarray]
    """Seconds each rank takes, from its pairs and the rows it receives."""
    pairs: Callable[[Sharding], np.ndarray] = lambda sharding: sharding.pairs
    """Query-key pairs each rank computes."""
    contiguous_only: bool = False
    """Whether the window must be cut into neighbouring rows."""
    check: Callable[[SegmentedRows, int], None] = lambda window, ranks: None
    """Refuses, by name, a window that the exchange cannot handle on this many ranks."""


def _gather_stages(sharding: Sharding, rank: int) -> tuple[Stage, ...]:
    shares, reach, offsets = sharding.shares, sharding.reach, sharding.segment_offsets
    return (gather_stage(shares, reach, offsets, rank, sharding.ranks, sharding.rows_per_rank),)


def _ring_stages(sharding: Sharding, rank: int) -> tuple[Stage, ...]:
    receivers, senders = np.nonzero(sharding.traffic)
    distances = np.unique((receivers - senders) % sharding.ranks).tolist()
    return ring_stages(sharding.shares, sharding.reach, sharding.segment_offsets, rank, sharding.ranks, distances)


def _whole_window_stages(sharding: Sharding, rank: int) -> tuple[Stage, ...]:
    """Every row of the window, in its order: for exchanges that give a rank some heads, or all keys, of it."""
    return _gather_stages(sharding.on_one_rank(), 0)


def _missing(sharding: Sharding, costs: CostModel) -> np.ndarray:
    return sharding.rows_missing


def _of_two_ranks(sharding: Sharding, costs: CostModel) -> np.ndarray:
    """While one rank's rows are computed on, the next one's arrive."""
    in_order_of_arrival = np.stack(
        [np.roll(row[::-1], rank) for rank, row in enumerate(sharding.traffic)]
    )  # [receiver, distance], distance 0 being the rank itself, which sends itself nothing
    return (in_order_of_arrival + np.roll(in_order_of_arrival, -1, axis=1)).max(axis=1)


def _all_others(sharding: Sharding, costs: CostModel) -> np.ndarray:
    return np.full(sharding.ranks, (sharding.ranks - 1) * sharding.rows_per_rank)


def _heads_as_rows(sharding: Sharding, costs: CostModel) -> np.ndarray:
    rows = rows_of_heads(sharding.rows_per_rank, sharding.ranks, costs.query_heads, costs.key_heads)
    return np.full(sharding.ranks, rows)


def _equal_pairs(sharding: Sharding) -> np.ndarray:
    total = int(sharding.pairs.sum())
    return total // sharding.ranks + (np.arange(sharding.ranks) < total % sharding.ranks)


def _check_whole_sequences(window: SegmentedRows, ranks: int) -> None:
    """What the package's function cannot do is refused by name."""
    if window.num_rows % ranks:
        raise ValueError(
            f"exchange='ring_flash_attn' needs a window that divides by its ranks, not {window.num_rows} rows by "
            f"{ranks}: choose gather, ring or ulysses"
        )
    in_segments = window.segments[window.segments >= 0]
    if len(np.unique(in_segments)) < len(in_segments):
        raise ValueError(
            "exchange='ring_flash_attn' needs documents in one run of rows each, not interleaved ones: choose gather, "
            "ring or ulysses"
        )


EXCHANGES: dict[str, Exchange] = {
    "gather": Exchange(_gather_stages, _missing, _missing, CostModel.gather_seconds),
    "ring": Exchange(_ring_stages, _missing, _of_two_ranks, CostModel.ring_seconds),
    "ulysses": Exchange(
        _whole_window_stages,
        _heads_as_rows,
        _heads_as_rows,
        CostModel.serial_seconds,
        pairs=_equal_pairs,
        contiguous_only=True,
    ),
    "ring_flash_attn": Exchange(
        _whole_window_stages,
        _all_others,
        _all_others,
        CostModel.serial_seconds,
        contiguous_only=True,
        check=_check_whole_sequences,
    ),
}
"""How ranks share a window. `gather`: every needed key and value row in one all-to-all. `ring`: the
needed rows of one other rank at a time. `ulysses`: every rank computes some heads of the whole
window. `ring_flash_attn`: the package's llama3 function, which gathers all rows."""
