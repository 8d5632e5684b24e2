"""Seeded permutations that are the same on every platform and with every version of numpy."""

from __future__ import annotations

import hashlib

import numpy as np


def seeded_keys(count: int, *seed: str | int) -> np.ndarray:
    """`count` pseudo-random uint64 numbers, a pure function of the seed's parts.

    Philox's raw output is fixed by its definition, while the streams of numpy's samplers may change
    between versions.
    """
    text = "\n".join(str(part) for part in seed)
    key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")
    return np.random.Philox(key=key).random_raw(count) if count else np.empty(0, dtype=np.uint64)


def seeded_permutation(count: int, *seed: str | int) -> np.ndarray:
    """A permutation of 0 .. count-1, int64 [count], a pure function of the seed's parts."""
    return np.argsort(seeded_keys(count, *seed), kind="stable").astype(np.int64)
