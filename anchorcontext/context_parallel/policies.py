"""Policies: which rank holds which rows of a window.

Each gives every rank ceil(rows / ranks) rows, or fewer on some, whatever the lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from anchorcontext.context_parallel.balance import chunks, hybrid
from anchorcontext.context_parallel.rows import SegmentedRows, Shares, merged

_MAX_RANGES_TRIED = 100_000


def contiguous(window: SegmentedRows, ranks: int) -> Shares:
    """Rank r holds window rows [r * c, (r + 1) * c), c = ceil(rows / ranks); the last ranks what is left.

    Least traffic, unequal work: a document's last rank sees all of it.
    """
    rows_per_rank = max(1, -(-window.num_rows // ranks))
    bounds = np.arange(0, window.num_rows, rows_per_rank)
    # Window rows to places: a bound lies inside a run, or begins one.
    by_row = np.argsort(window.rows)
    run = by_row[np.searchsorted(window.rows[by_row], bounds, side="right") - 1]
    places = merged(window.places, window.places[run] + bounds - window.rows[run])
    run = np.searchsorted(window.places, places, side="right") - 1
    rows = window.rows[run] + places - window.places[run]
    return Shares.cut(window, places, rows // rows_per_rank)


def zigzag(window: SegmentedRows, ranks: int) -> Shares:
    """Every document in 2 * ranks chunks; rank r holds chunks r and 2 * ranks - 1 - r of each.

    Equal work and equal rows: a document's n rows give each rank floor(n / ranks), and the rest one
    each to ranks in turn, going on from one document to the next, so that totals differ by at most
    one. Padding is distributed like a last document.
    """
    lengths = np.diff(np.append(window.segment_offsets, window.num_rows))
    base, rest = lengths // ranks, lengths % ranks
    first_taker = (np.cumsum(rest) - rest) % ranks
    turn = (np.arange(ranks)[None, :] - first_taker[:, None]) % ranks
    counts = base[:, None] + (turn < rest[:, None])  # [segments, ranks]
    early = counts // 2
    chunks = np.concatenate([early, (counts - early)[:, ::-1]], axis=1).reshape(-1)
    owner = np.tile(np.concatenate([np.arange(ranks), np.arange(ranks)[::-1]]), len(lengths))
    held = chunks > 0
    starts = (np.cumsum(chunks) - chunks)[held]
    return Shares.cut(window, starts, owner[held])


Policy = Callable[[SegmentedRows, int], Shares]

_hybrid_over_all = partial(hybrid, long=0.25, spread=math.inf)

POLICIES: dict[str, tuple[Policy, ...]] = {
    "contiguous": (contiguous,),
    "chunks": tuple(partial(chunks, long=long) for long in (0.5, 0.3, 0.4)),
    "hybrid": (partial(hybrid, long=0.25, spread=2.0), partial(hybrid, long=0.5, spread=3.0), _hybrid_over_all),
    "zigzag": (zigzag,),
}
"""Policies by name, each with its settings, in the order in which they are tried."""


def auto_settings(window: SegmentedRows, ranks: int) -> list[tuple[str, Policy]]:
    """What policy `auto` tries: all of them, except those that would cut a long window into tiny pieces."""
    settings = [(name, share) for name, shares in POLICIES.items() for share in shares]
    if len(window.segment_offsets) * ranks > _MAX_RANGES_TRIED:
        return [(name, share) for name, share in settings if share not in (zigzag, _hybrid_over_all)]
    return settings
