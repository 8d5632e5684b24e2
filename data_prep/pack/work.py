"""How much attention a window costs, from its pieces alone."""

from __future__ import annotations

import numpy as np


def window_work(documents: np.ndarray, rows: np.ndarray, window_ends: np.ndarray) -> np.ndarray:
    """Attention work of each window: its documents' squared rows, summed; int64 [windows].

    A document's rows see one another causally, so this is twice the query-key pairs, less the rows.
    Pieces of one document in one window count as one.

    Args:
        documents: the document of each piece, [pieces], window behind window.
        rows: rows of each piece, [pieces].
        window_ends: where each window ends, in pieces, [windows].
    """
    ends = np.asarray(window_ends, dtype=np.int64)
    window = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    if not len(window):
        return np.zeros(len(ends), dtype=np.int64)
    documents = np.asarray(documents)
    order = np.lexsort((documents, window))
    window, documents = window[order], documents[order]
    begins = np.flatnonzero(np.concatenate(([True], (np.diff(window) != 0) | (documents[1:] != documents[:-1]))))
    of_documents = np.add.reduceat(np.asarray(rows, dtype=np.int64)[order], begins)
    work = np.zeros(len(ends), dtype=np.int64)
    np.add.at(work, window[begins], of_documents**2)
    return work
