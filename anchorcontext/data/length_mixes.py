"""Document lengths of published and synthetic corpora, for simulations and benchmarks.

`web` is the histogram that MagiAttention publishes for its benchmarks (github.com/SandAI-org/MagiAttention).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

WEB_HISTOGRAM = (
    (2, 10, 30254),
    (11, 50, 391188),
    (51, 100, 699596),
    (101, 200, 1377757),
    (201, 500, 3794735),
    (501, 1024, 3316785),
    (1025, 2048, 2106566),
    (2049, 4096, 988525),
    (4097, 8192, 410002),
    (8193, 16384, 173574),
    (16385, 32768, 115007),
    (32769, 65536, 18428),
    (65537, 131072, 22513),
    (131073, 196608, 18284),
)
"""Documents of `web`: from and to how many tokens, and how many there are. Log-uniform within a range."""

LONG_SHARE = 0.012
LONG_RANGE = (32_768, 131_072)
LONG_OTHERS_CAP = 16_384
EIGHT_K_RANGE = (4_096, 12_288)

_WEB_BOUNDS = np.cumsum([count for _, _, count in WEB_HISTOGRAM]) / sum(count for _, _, count in WEB_HISTOGRAM)


def _log_uniform(draws: np.random.Generator, low: int, high: int) -> int:
    """An integer from `low` to `high`, its logarithm uniform."""
    return min(int(low * ((high + 1) / low) ** draws.random()), high)


def _web(draws: np.random.Generator, window_tokens: int) -> int:
    return _web_up_to(draws, max(window_tokens // 4, 1))


def _web_up_to(draws: np.random.Generator, cap: int) -> int:
    low, high, _ = WEB_HISTOGRAM[int(np.searchsorted(_WEB_BOUNDS, draws.random(), side="right"))]
    return min(_log_uniform(draws, low, high), cap)


def _long(draws: np.random.Generator, window_tokens: int) -> int:
    return _log_uniform(draws, *LONG_RANGE) if draws.random() < LONG_SHARE else _web_up_to(draws, LONG_OTHERS_CAP)


def _eight_k(draws: np.random.Generator, window_tokens: int) -> int:
    low, high = EIGHT_K_RANGE
    return low + math.floor(draws.random() * (high - low + 1))


MIXES: dict[str, Callable[[np.random.Generator, int], int]] = {
    "web": _web,
    "long": _long,
    "8K": _eight_k,
    "one_document": lambda draws, window_tokens: window_tokens,
}
"""A document's length, by mix: `web` capped at a quarter of the window; `long`, the same capped at
16,384 and 1.2% of documents 32,768 to 131,072 long; `8K`, 4,096 to 12,288; or one document per window."""


def sample_window(mix: str, window_tokens: int, seed: int) -> list[int]:
    """Lengths of a window's documents, the last one cut off at the window's end. The same on every platform.

    Raises:
        ValueError: a mix that does not exist.
    """
    if mix not in MIXES:
        raise ValueError(f"mix={mix!r} is not one of {', '.join(MIXES)}")
    draws = np.random.Generator(np.random.PCG64(seed))
    lengths: list[int] = []
    left = window_tokens
    while left:
        lengths.append(min(MIXES[mix](draws, window_tokens), left))
        left -= lengths[-1]
    return lengths
