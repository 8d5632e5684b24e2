"""Interleaving: the documents of a window cut into chunks, which alternate at random.

A chunk sees its document's earlier chunks, so it continues them: the first chunk of a document has
the prefix rows, the later ones have none, and a window has as many rows as before.
"""

from __future__ import annotations

import numpy as np

from data_prep.pack.pieces import ENDS_DOCUMENT, INNER_CHUNK, STARTS_DOCUMENT
from data_prep.permutation import seeded_keys


def interleave(
    pieces: np.ndarray, windows: np.ndarray, chunk_tokens: int, *seed: str | int
) -> tuple[np.ndarray, np.ndarray]:
    """Chunks of the pieces, each window's in random order, a document's own in their order.

    Args:
        pieces: `PIECE_DTYPE` [pieces].
        windows: the window of each, [pieces].
        chunk_tokens: tokens of a chunk; a piece's last chunk may have fewer.

    Returns:
        The chunks, `PIECE_DTYPE`, and where each window ends in them.
    """
    length = pieces["length"].astype(np.int64)
    counts = -(-length // chunk_tokens)
    piece = np.repeat(np.arange(len(pieces)), counts)
    within = np.arange(len(piece)) - np.repeat(np.cumsum(counts) - counts, counts)
    chunks = pieces[piece].copy()
    chunks["start"] += (within * chunk_tokens).astype(np.uint64)
    chunks["length"] = np.minimum(chunk_tokens, length[piece] - within * chunk_tokens)
    is_first, is_last = within == 0, within == counts[piece] - 1
    flags = pieces["flags"][piece]
    chunks["flags"] = np.where(is_first, flags & STARTS_DOCUMENT, INNER_CHUNK) | np.where(
        is_last, flags & ENDS_DOCUMENT, 0
    )
    keys = seeded_keys(len(chunks), "chunks", *seed)
    keys = keys[np.lexsort((keys, piece))]  # growing within each piece: its chunks keep their order
    order = np.lexsort((keys, windows[piece]))
    return chunks[order], window_ends(windows[piece])


def window_ends(windows: np.ndarray) -> np.ndarray:
    """Where each window ends in the pieces that are sorted by window, uint64 [windows]."""
    return np.cumsum(np.bincount(windows)).astype("<u8")
