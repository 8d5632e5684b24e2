"""Documents -> pieces: which tokens lie together in a window.

A piece is an anchor row, tokens, and, at its document's end, the end-of-document row where the
option asks for one. A document is cut only if these rows are more than a window holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ANCHOR_ROWS = 1
STARTS_DOCUMENT = 1
ENDS_DOCUMENT = 2

PIECE_DTYPE = np.dtype(
    [
        ("source", "<u4"),  # number of the store in the index
        ("shard", "<u4"),
        ("start", "<u8"),  # first token, from the shard's begin
        ("length", "<u4"),  # tokens of the shard; anchor and end-of-document row not counted
        ("flags", "<u4"),  # STARTS_DOCUMENT | ENDS_DOCUMENT
        ("document", "<u8"),  # number of the document over all stores
    ]
)


@dataclass(frozen=True)
class Documents:
    """Documents of all stores, one entry each.

    Attributes:
        source, shard: where each lies.
        start: its first token, from the shard's begin.
        length: its tokens.
        number: its number over all stores.
    """

    source: np.ndarray
    shard: np.ndarray
    start: np.ndarray
    length: np.ndarray
    number: np.ndarray

    def __len__(self) -> int:
        return len(self.length)

    def select(self, chosen: np.ndarray) -> Documents:
        """Those where the bool array `chosen` [documents] is true."""
        return Documents(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


def end_rows(end_of_document: str) -> int:
    """Rows that end a document: 1 with an EOS row, else 0."""
    return 1 if end_of_document == "eos" else 0


def cut_pieces(documents: Documents, window_tokens: int, end_of_document: str) -> np.ndarray:
    """Pieces of the documents, in their order, `PIECE_DTYPE` [pieces].

    Every piece of a cut document but the last fills its window. The one exception: where only the
    end-of-document row would be left over, the last token goes with it, because a row that no
    token of its window predicts would teach nothing.
    """
    tokens_per_piece = window_tokens - ANCHOR_ROWS
    ending = end_rows(end_of_document)
    length = documents.length.astype(np.int64)
    counts = -(-(length + ending) // tokens_per_piece)
    document = np.repeat(np.arange(len(documents)), counts)
    within = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)

    begin = within * tokens_per_piece
    end = np.minimum(begin + tokens_per_piece, length[document])
    is_last = within == counts[document] - 1
    lonely_ending = is_last & (begin == end)
    begin[lonely_ending] -= 1
    end[np.flatnonzero(lonely_ending) - 1] -= 1

    pieces = np.empty(len(document), dtype=PIECE_DTYPE)
    pieces["source"] = documents.source[document]
    pieces["shard"] = documents.shard[document]
    pieces["start"] = documents.start[document].astype(np.int64) + begin
    pieces["length"] = end - begin
    pieces["flags"] = STARTS_DOCUMENT * (within == 0) + ENDS_DOCUMENT * is_last
    pieces["document"] = documents.number[document]
    return pieces


def piece_rows(pieces: np.ndarray, end_of_document: str) -> np.ndarray:
    """Rows of each piece in its window, int64 [pieces]: anchor, tokens, end-of-document row."""
    ends = (pieces["flags"] & ENDS_DOCUMENT) > 0
    return ANCHOR_ROWS + pieces["length"].astype(np.int64) + end_rows(end_of_document) * ends
