"""First-fit: each piece into the first window that still holds it, in the given order."""

from __future__ import annotations

import numpy as np


def first_fit(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """The bin of each item, int64 [items]; bins are numbered in the order of their opening.

    Time grows with items x log(bins): a tree holds the most room of each half of its bins.

    Args:
        lengths: rows of each item, 1 .. capacity.
        capacity: rows of a bin.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    assert lengths.size == 0 or (lengths.min() >= 1 and lengths.max() <= capacity), "items must fit a bin"
    most_bins = min(len(lengths), 2 * -(-int(lengths.sum()) // capacity) + 1)  # two neighbours never fit into one
    leaves = 1 << max(most_bins - 1, 0).bit_length()
    room = [capacity] * (2 * leaves)  # node n has the children 2n and 2n + 1; the bins are the last `leaves` nodes
    bins = np.empty(len(lengths), dtype=np.int64)
    for item, length in enumerate(lengths.tolist()):
        node = 1
        while node < leaves:
            node *= 2
            if room[node] < length:
                node += 1
        bins[item] = node - leaves
        room[node] -= length
        node //= 2
        while node:
            most = max(room[2 * node], room[2 * node + 1])
            if room[node] == most:
                break
            room[node] = most
            node //= 2
    return bins
