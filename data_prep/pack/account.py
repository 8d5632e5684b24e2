"""What became of every document and token: the ledger that packing fills in, and the figures made from it.

In a split, and in each of its sources, documents and tokens in, plus those taken more than once, are
those packed plus those dropped. This is checked whenever an index is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from data_prep.mix import Share
from data_prep.pack.options import PackOptions
from data_prep.pack.pieces import (
    ENDS_DOCUMENT,
    INNER_CHUNK,
    STARTS_DOCUMENT,
    Documents,
    end_rows,
    piece_rows,
    prefix_rows_of_sources,
)

SHORT = "shorter than min_document_tokens"
THINNED = "short, left out by keep_short_fraction"
LONG = "longer than a window"
BEHIND_HEAD = "behind the head of a long document"
NOT_NEEDED = "more than the mixture needs"
LAST_WINDOW = "in the last window, dropped"
_SUMMED = ("documents_in", "tokens_in", "documents", "tokens", "rows", "pieces", "cut_documents", "needlessly_cut")
_WORK_BUCKETS = 20
_PERCENTILES = (5, 25, 50, 75, 95)


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


def account_for(
    documents: Documents,
    pieces: np.ndarray,
    windows: np.ndarray,
    options: PackOptions,
    names: Sequence[str],
    ledger: Ledger,
    total_documents: int,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Figures of a split, and of each of its sources.

    Args:
        documents: the split's documents, before anything was dropped.
        pieces: what was made of them, before interleaving, `PIECE_DTYPE` [pieces].
        windows: the window of each piece, [pieces].
        names: of the sources.
        ledger: what was dropped and repeated on the way.
        total_documents: of all stores; a repetition's number is its document's plus a multiple of it.

    Returns:
        The split's figures, and a source's, JSON values throughout:
        `documents_in`, `tokens_in`: of the corpus; `documents`, `tokens`: packed, repetitions
        included; `dropped`: both by reason; `repeated`: both, beyond the first time; `rows`,
        `pieces`; `cut_documents`: packed in several pieces or in part; `needlessly_cut`: of these,
        such as would have fitted a window; `lengths`: histograms by power of two.
        Of a source: `share`, what the mixture asked for (None without one).
        Of a split: `windows`, `padding_rows`, `density`, `distance_frequency`, `work`.
    """
    rows = piece_rows(pieces, options.end_of_document, options.tagged_sources(names))
    cut = _cut_documents(documents, pieces, options, names, total_documents)
    longest = max((int(array.max()) for array in (documents.length, pieces["length"]) if len(array)), default=1)
    num_buckets = longest.bit_length()
    per_source = []
    for source in range(len(names)):
        of_documents, of_pieces = documents.source == source, pieces["source"] == source
        figures = {
            "documents_in": int(of_documents.sum()),
            "tokens_in": int(documents.length[of_documents].sum()),
            "documents": _num_distinct(pieces["document"][of_pieces]),
            "tokens": int(pieces["length"][of_pieces].sum()),
            "rows": int(rows[of_pieces].sum()),
            "pieces": int(of_pieces.sum()),
            "cut_documents": int((cut["source"] == source).sum()),
            "needlessly_cut": int(((cut["source"] == source) & cut["fits"]).sum()),
            **ledger.of_source(source),
            "lengths": _histograms(documents.length[of_documents], pieces["length"][of_pieces], num_buckets),
            "share": None if (share := ledger.shares[source]) is None else vars(share),
        }
        _assert_conserved(figures)
        per_source.append(figures)
    return _totals(per_source, pieces, rows, windows, options.window_tokens), per_source


def distance_frequency(lengths: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Pairs of rows at each distance that lie in one sequence, int64: sum over sequences of max(length - distance, 0).

    STRING's f(i) (arXiv 2410.18745): how often training sees a relative position.

    Args:
        lengths: rows of each sequence.
        distances: at least 0.
    """
    ordered = np.sort(lengths.astype(np.int64))
    sums = np.append(np.cumsum(ordered[::-1])[::-1], 0)
    first = np.searchsorted(ordered, distances, side="right")  # sequences from here on are longer
    return sums[first] - distances.astype(np.int64) * (len(ordered) - first)


def window_work(pieces: np.ndarray, rows: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Attention work of each window, int64 [windows]: the sum of its documents' squared rows.

    Args:
        pieces: `PIECE_DTYPE` [pieces]; chunks of a document in one window count as one.
        rows: of each piece.
        windows: the window of each piece; every window has one.
    """
    inner = bool(((pieces["flags"] & INNER_CHUNK) > 0).any())
    if inner:
        order = np.lexsort((pieces["document"], windows))
        document, window = pieces["document"][order], windows[order]
        first = np.flatnonzero(np.append(True, (document[1:] != document[:-1]) | (window[1:] != window[:-1])))
        rows, windows = np.add.reduceat(rows[order], first), window[first]
    work = np.zeros(int(windows.max()) + 1 if len(windows) else 0, dtype=np.int64)
    np.add.at(work, windows, rows.astype(np.int64) ** 2)
    return work


def _cut_documents(
    documents: Documents, pieces: np.ndarray, options: PackOptions, names: Sequence[str], total_documents: int
) -> dict[str, np.ndarray]:
    """Source of every document packed in several pieces or in part, and whether it would have fitted whole."""
    whole = STARTS_DOCUMENT | ENDS_DOCUMENT
    parts = pieces[(pieces["flags"] & whole) != whole]
    _, first = np.unique(parts["document"], return_index=True)
    cut = parts[first]
    place = np.searchsorted(documents.number, cut["document"] % np.uint64(total_documents))
    rows = prefix_rows_of_sources(cut["source"], options.tagged_sources(names)) + documents.length[place]
    return {"source": cut["source"], "fits": rows + end_rows(options.end_of_document) <= options.window_tokens}


def _num_distinct(numbers: np.ndarray) -> int:
    ordered = np.sort(numbers)  # faster than np.unique on millions
    return int((ordered[1:] != ordered[:-1]).sum()) + (len(ordered) > 0)


def _histograms(lengths: np.ndarray, piece_lengths: np.ndarray, num_buckets: int) -> dict[str, list[int]]:
    """Documents before and pieces after, and their tokens, of 2**i to 2**(i+1)-1 tokens in bucket i."""
    found = {}
    for things, tokens, array in (
        ("documents_in", "tokens_in", lengths),
        ("pieces", "tokens", piece_lengths),
    ):
        bucket = np.frexp(array.astype(np.float64))[1] - 1  # exact: the exponent of a whole number
        bucket = np.maximum(bucket, 0)
        found[things] = np.bincount(bucket, minlength=num_buckets).tolist()
        weights = array.astype(np.float64)
        found[tokens] = np.bincount(bucket, weights=weights, minlength=num_buckets).astype(np.int64).tolist()
    return found


def _assert_conserved(figures: dict[str, Any]) -> None:
    """No `assert`, which `python -O` leaves out: an index that loses documents must not be written by anybody."""
    for name in ("documents", "tokens"):
        dropped = sum(counts[name] for counts in figures["dropped"].values())
        total = figures[f"{name}_in"] + figures["repeated"][name]
        if total != figures[name] + dropped:
            raise AssertionError(f"packing must account for all {name}")


def _totals(
    per_source: list[dict[str, Any]], pieces: np.ndarray, rows: np.ndarray, windows: np.ndarray, window_tokens: int
) -> dict[str, Any]:
    num_windows = int(windows.max()) + 1 if len(windows) else 0
    used = int(rows.sum())
    totals: dict[str, Any] = {"windows": num_windows}
    for name in _SUMMED:
        totals[name] = sum(figures[name] for figures in per_source)
    dropped: dict[str, dict[str, int]] = {}
    for figures in per_source:
        for reason, counts in figures["dropped"].items():
            of_reason = dropped.setdefault(reason, {"documents": 0, "tokens": 0})
            for name, count in counts.items():
                of_reason[name] += count
    totals["dropped"] = dropped
    totals["repeated"] = {
        name: sum(figures["repeated"][name] for figures in per_source) for name in ("documents", "tokens")
    }
    totals["padding_rows"] = num_windows * window_tokens - used
    totals["density"] = used / (num_windows * window_tokens) if num_windows else 0.0
    totals["lengths"] = {
        name: np.sum([figures["lengths"][name] for figures in per_source], axis=0).tolist()
        for name in ("documents_in", "tokens_in", "pieces", "tokens")
    }
    distances = _distances(window_tokens)
    totals["distance_frequency"] = {
        "distances": distances.tolist(),
        "pairs": distance_frequency(rows, distances).tolist(),
    }
    totals["work"] = _work_figures(window_work(pieces, rows, windows), window_tokens)
    return totals


def _distances(window_tokens: int) -> np.ndarray:
    """0, and from 1 up to the window, four steps a doubling."""
    steps = np.arange(4 * window_tokens.bit_length())
    return np.unique(np.append(0, np.minimum((2.0 ** (steps / 4)).astype(np.int64), window_tokens - 1)))


def _work_figures(work: np.ndarray, window_tokens: int) -> dict[str, Any]:
    """Squared rows: mean, extremes and percentiles, and windows by share of a one-document window's work."""
    one_document = window_tokens**2
    share = work.astype(np.float64) / one_document
    bucket = np.minimum((share * _WORK_BUCKETS).astype(np.int64), _WORK_BUCKETS - 1)
    return {
        "one_document": one_document,
        "total": int(work.sum()),
        "mean": float(work.mean()) if len(work) else 0.0,
        "min": int(work.min()) if len(work) else 0,
        "max": int(work.max()) if len(work) else 0,
        "percentiles": {
            str(percent): int(np.percentile(work, percent, method="lower")) if len(work) else 0
            for percent in _PERCENTILES
        },
        "windows_by_share": np.bincount(bucket, minlength=_WORK_BUCKETS).tolist(),
    }
