"""What became of every document and token: the figures of a pack index."""

from __future__ import annotations

from typing import Any

import numpy as np

from data_prep.pack.pieces import STARTS_DOCUMENT, Documents


def account_for(
    documents: Documents,
    pieces: np.ndarray,
    rows: np.ndarray,
    window_ends: np.ndarray,
    window_tokens: int,
    num_sources: int,
) -> tuple[dict[str, Any], list[dict[str, int]]]:
    """Figures of a split, and of each of its sources.

    Args:
        documents: the documents that were to be packed.
        pieces: what was made of them, `PIECE_DTYPE` [pieces].
        rows: rows of each piece, [pieces].
        window_ends: [windows].
    """
    assert int(pieces["length"].sum()) == int(documents.length.sum()), "packing must keep every token"
    num_windows = len(window_ends)
    used = int(rows.sum())
    per_source = []
    for source in range(num_sources):
        of_documents, of_pieces = documents.source == source, pieces["source"] == source
        started = of_pieces & ((pieces["flags"] & STARTS_DOCUMENT) > 0)
        assert int(started.sum()) == int(of_documents.sum()), "packing must keep every document"
        tokens = int(pieces["length"][of_pieces].sum())
        continued = np.unique(pieces["document"][of_pieces & ~started])
        per_source.append(
            {
                "documents": int(of_documents.sum()),
                "tokens": tokens,
                "rows": int(rows[of_pieces].sum()),
                "pieces": int(of_pieces.sum()),
                "cut_documents": len(continued),
            }
        )
    totals: dict[str, Any] = {"windows": num_windows}
    for name in ("documents", "tokens", "rows", "pieces", "cut_documents"):
        totals[name] = sum(counts[name] for counts in per_source)
    totals["padding_rows"] = num_windows * window_tokens - used
    totals["density"] = used / (num_windows * window_tokens) if num_windows else 0.0
    return totals, per_source
