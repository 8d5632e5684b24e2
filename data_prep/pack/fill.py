"""Pieces -> windows, by the algorithm of choice; then everything that is orderly is shuffled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data_prep.pack.bins import best_fit_decreasing
from data_prep.pack.chop import concat_and_chop, join_pieces
from data_prep.pack.first_fit import first_fit
from data_prep.pack.options import PackOptions
from data_prep.pack.pieces import piece_rows, prefix_rows_of_sources
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
    longest piece at the begin of every window, and short ones only far behind.
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
