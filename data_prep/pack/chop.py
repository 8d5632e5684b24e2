"""Concat-and-chop: documents behind one another, cut wherever a window ends.

What most training code does; here for comparison. It cuts documents that would have fitted a window,
and the account says how many.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_prep.pack.pieces import ENDS_DOCUMENT, STARTS_DOCUMENT, end_rows, prefix_rows


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
    end-of-document row would otherwise come to stand alone in the next window.
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
