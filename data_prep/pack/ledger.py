"""What is left out, and what is taken more than once, while documents become windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from data_prep.mix import Share

SHORT = "shorter than min_document_tokens"
THINNED = "short, left out by keep_short_fraction"
LONG = "longer than a window"
BEHIND_HEAD = "behind the head of a long document"
NOT_NEEDED = "more than the mixture needs"
LAST_WINDOW = "in the last window, dropped"


class Ledger:
    """Documents and tokens by source: dropped, by reason, and repeated.

    A document counts as dropped where nothing of it is packed; of one that is packed in part, its
    tokens alone.
    """

    def __init__(self, num_sources: int) -> None:
        self._num_sources = num_sources
        self._dropped: dict[str, np.ndarray] = {}
        self._repeated = np.zeros((2, num_sources), dtype=np.int64)
        self.shares: list[Share | None] = [None] * num_sources

    def drop(self, reason: str, sources: np.ndarray, tokens: np.ndarray, whole: np.ndarray | bool = True) -> None:
        """Enter documents, or parts of them: source and tokens of each, and whether it is a whole document."""
        counts = self._count(sources, tokens, whole)
        self._dropped[reason] = self._dropped.get(reason, 0) + counts

    def repeat(self, sources: np.ndarray, tokens: np.ndarray, begins: np.ndarray) -> None:
        """Enter pieces taken once more; `begins` where a piece is its document's first that is taken."""
        self._repeated += self._count(sources, tokens, begins)

    def of_source(self, source: int) -> dict[str, Any]:
        """What the account says: reasons without an entry are left out."""
        names = ("documents", "tokens")
        return {
            "dropped": {
                reason: dict(zip(names, counts[:, source].tolist(), strict=True))
                for reason, counts in self._dropped.items()
                if counts[:, source].any()
            },
            "repeated": dict(zip(names, self._repeated[:, source].tolist(), strict=True)),
        }

    def _count(self, sources: np.ndarray, tokens: np.ndarray, whole: np.ndarray | bool) -> np.ndarray:
        """Documents and tokens, int64 [2, sources]."""
        sources = sources.astype(np.int64)
        documents = np.broadcast_to(np.asarray(whole, dtype=np.float64), sources.shape)
        return np.stack(
            [
                np.bincount(sources, weights=weights, minlength=self._num_sources).astype(np.int64)
                for weights in (documents, tokens.astype(np.float64))
            ]
        )
