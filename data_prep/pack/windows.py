"""Pieces -> windows, by the chosen algorithm; then windows and pieces are shuffled, or interleaved in chunks.

Concat-and-chop is what most training code does, and is here for comparison: it cuts documents that
would have fitted a window, and the account says how many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data_prep.pack.bins import best_fit_decreasing, first_fit
from data_prep.pack.options import PackOptions
from data_prep.pack.pieces import (
    ENDS_DOCUMENT,
    INNER_CHUNK,
    STARTS_DOCUMENT,
    end_rows,
    piece_rows,
    prefix_rows,
    prefix_rows_of_sources,
)
from data_prep.permutation import seeded_keys, seeded_permutation


@dataclass(frozen=True)
class Filled:
    """Windows.

    Attributes:
        pieces: `PIECE_DTYPE` [pieces], sorted by window.
        windows: the window of each, int64 [pieces].
        dropped: pieces of the last window where that is dropped, `PIECE_DTYPE`.
    """

    pieces: np.ndarray
    windows: np.ndarray
    dropped: np.ndarray


def fill_windows(pieces: np.ndarray, options: PackOptions, split: str, tagged_sources: Sequence[int] = ()) -> Filled:
    """Put the pieces into windows.

    Windows, and the pieces within each, are shuffled: best-fit decreasing alone would put the
    longest piece at the beginning of every window, and short ones only near its end.
    """
    pieces, bins = _assign(pieces, options, split, tagged_sources)
    keep = _kept(pieces, bins, options, tagged_sources)
    dropped = pieces[~keep]
    pieces, bins = pieces[keep], bins[keep]
    if len(dropped):
        bins = np.unique(bins, return_inverse=True)[1]
    num_windows = int(bins.max()) + 1 if len(bins) else 0
    windows = seeded_permutation(num_windows, "windows", split, options.seed)[bins]
    order = np.lexsort((seeded_keys(len(pieces), "pieces", split, options.seed), windows))
    return Filled(pieces[order], windows[order], dropped)


def _assign(
    pieces: np.ndarray, options: PackOptions, split: str, tagged_sources: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """The pieces, in whatever order and cut as the algorithm does, and the bin of each."""
    rows = piece_rows(pieces, options.end_of_document, tagged_sources)
    if options.algorithm == "best_fit_decreasing":
        return pieces, best_fit_decreasing(rows, options.window_tokens)
    if options.algorithm == "one_document":
        return pieces, np.arange(len(pieces), dtype=np.int64)
    if options.algorithm == "first_fit":
        order = seeded_permutation(len(pieces), "first_fit", split, options.seed)
        return pieces[order], first_fit(rows[order], options.window_tokens)
    documents = join_pieces(pieces)
    order = seeded_permutation(len(documents), "concat", split, options.seed)
    return concat_and_chop(documents[order], options.window_tokens, options.end_of_document, tagged_sources)


def _kept(pieces: np.ndarray, bins: np.ndarray, options: PackOptions, tagged_sources: Sequence[int]) -> np.ndarray:
    """False for the pieces of the emptiest window where that is to be dropped, bool [pieces]."""
    if options.last_windows == "keep" or options.algorithm == "one_document" or not len(pieces):
        return np.ones(len(pieces), dtype=bool)
    used = np.bincount(bins, weights=piece_rows(pieces, options.end_of_document, tagged_sources))
    emptiest = int(np.argmin(used))
    most_prefix = int(prefix_rows_of_sources(pieces["source"], tagged_sources).max())
    is_full = options.window_tokens - used[emptiest] <= most_prefix  # no room for a token more
    return (bins != emptiest) | is_full


def join_pieces(pieces: np.ndarray) -> np.ndarray:
    """Neighbouring pieces of one document made one again: uncut documents, `PIECE_DTYPE`."""
    if not len(pieces):
        return pieces
    first = np.flatnonzero(np.append(True, pieces["document"][1:] != pieces["document"][:-1]))
    last = np.append(first[1:], len(pieces)) - 1
    joined = pieces[first].copy()
    joined["length"] = np.add.reduceat(pieces["length"].astype(np.int64), first)
    joined["flags"] = (pieces["flags"][first] & STARTS_DOCUMENT) | (pieces["flags"][last] & ENDS_DOCUMENT)
    return joined


def concat_and_chop(
    documents: np.ndarray, window_tokens: int, end_of_document: str, tagged_sources: Sequence[int] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Pieces, `PIECE_DTYPE`, and the window of each, int64.

    Every piece has its own prefix, so that no window begins without an anchor. A window's last rows
    stay empty where they hold no token: where only prefix rows would fit, and one row where the
    end-of-document row would otherwise be alone in the next window.
    """
    ending = end_rows(end_of_document)
    prefixes = prefix_rows(documents, tagged_sources).tolist()
    of: list[int] = []
    begins: list[int] = []
    taken: list[int] = []
    flags: list[int] = []
    windows: list[int] = []
    window, room = 0, window_tokens
    columns = zip(documents["length"].tolist(), documents["flags"].tolist(), prefixes, strict=True)
    for number, (length, given, prefix) in enumerate(columns):
        ends_here = bool(given & ENDS_DOCUMENT)
        begin = 0
        while begin < length:
            take = min(length - begin, room - prefix)
            is_last = take == length - begin
            if is_last and ends_here and room - prefix - take < ending:
                take, is_last = take - 1, False  # the last token goes with the end-of-document row
            if take > 0:
                of.append(number)
                begins.append(begin)
                taken.append(take)
                flags.append((given & STARTS_DOCUMENT) * (begin == 0) | (given & ENDS_DOCUMENT) * is_last)
                windows.append(window)
                begin += take
                room -= prefix + take + ending * (is_last and ends_here)
            if not is_last:
                window, room = window + 1, window_tokens
    pieces = documents[np.array(of, dtype=np.int64)].copy()
    pieces["start"] += np.array(begins, dtype=np.uint64)
    pieces["length"] = taken
    pieces["flags"] = flags
    return pieces, np.array(windows, dtype=np.int64)


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
