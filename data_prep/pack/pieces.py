"""Documents -> pieces: which tokens lie together in a window.

A piece is its prefix (an anchor row, and a tag row where its source has a domain tag), tokens, and, at
its document's end, the end-of-document row where the option asks for one. A document is cut only if
these rows are more than a window holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ANCHOR_ROWS = 1
STARTS_DOCUMENT = 1
ENDS_DOCUMENT = 2
INNER_CHUNK = 4

PIECE_DTYPE = np.dtype(
    [
        ("source", "<u4"),  # number of the store in the index
        ("shard", "<u4"),
        ("start", "<u8"),  # first token, from the beginning of the shard
        ("length", "<u4"),  # tokens of the shard; anchor and end-of-document row not counted
        ("flags", "<u4"),  # STARTS_DOCUMENT | ENDS_DOCUMENT | INNER_CHUNK: no prefix, an earlier chunk has it
        ("document", "<u8"),  # number of the document over all stores; + repetition * documents of all stores
    ]
)


@dataclass(frozen=True)
class Documents:
    """Documents of all stores, one entry each.

    Attributes:
        source, shard: where each is.
        start: its first token, from the beginning of the shard.
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


def prefix_rows_of_sources(sources: np.ndarray, tagged_sources: Sequence[int] = ()) -> np.ndarray:
    """Rows before a piece's tokens, by its source: the anchor, and the tag of a tagged source; int64."""
    return ANCHOR_ROWS + np.isin(sources, np.asarray(tagged_sources, dtype=np.int64)).astype(np.int64)


def cut_pieces(
    documents: Documents, window_tokens: int, end_of_document: str, tagged_sources: Sequence[int] = ()
) -> np.ndarray:
    """Pieces of the documents, in their order, `PIECE_DTYPE` [pieces].

    Every piece of a cut document but the last fills its window. The one exception: where only the
    end-of-document row would be left over, the last token goes with it, because a row that no
    token of its window predicts would teach nothing.
    """
    tokens_per_piece = window_tokens - prefix_rows_of_sources(documents.source, tagged_sources)
    ending = end_rows(end_of_document)
    length = documents.length.astype(np.int64)
    counts = -(-(length + ending) // tokens_per_piece)
    document = np.repeat(np.arange(len(documents)), counts)
    within = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)

    begin = within * tokens_per_piece[document]
    end = np.minimum(begin + tokens_per_piece[document], length[document])
    is_last = within == counts[document] - 1
    lonely_ending = is_last & (begin == end)
    begin[lonely_ending] -= 1
    end[np.flatnonzero(lonely_ending) - 1] -= 1
    return _pieces(documents, document, begin, end, STARTS_DOCUMENT * (within == 0) + ENDS_DOCUMENT * is_last)


def head_pieces(
    documents: Documents, window_tokens: int, end_of_document: str, tagged_sources: Sequence[int] = ()
) -> np.ndarray:
    """The first window of each document alone, `PIECE_DTYPE` [documents]; what is left of a longer one is dropped."""
    room = window_tokens - prefix_rows_of_sources(documents.source, tagged_sources)
    length = documents.length.astype(np.int64)
    ends = length + end_rows(end_of_document) <= room
    everyone = np.arange(len(documents))
    return _pieces(
        documents, everyone, np.zeros_like(length), np.minimum(length, room), STARTS_DOCUMENT + ENDS_DOCUMENT * ends
    )


def _pieces(
    documents: Documents, document: np.ndarray, begin: np.ndarray, end: np.ndarray, flags: np.ndarray
) -> np.ndarray:
    pieces = np.empty(len(document), dtype=PIECE_DTYPE)
    pieces["source"] = documents.source[document]
    pieces["shard"] = documents.shard[document]
    pieces["start"] = documents.start[document].astype(np.int64) + begin
    pieces["length"] = end - begin
    pieces["flags"] = flags
    pieces["document"] = documents.number[document]
    return pieces


def prefix_rows(pieces: np.ndarray, tagged_sources: Sequence[int] = ()) -> np.ndarray:
    """Rows before each piece's tokens, int64 [pieces]: anchor and tag; none before an inner chunk."""
    inner = (pieces["flags"] & INNER_CHUNK) > 0
    return np.where(inner, 0, prefix_rows_of_sources(pieces["source"], tagged_sources))


def piece_rows(pieces: np.ndarray, end_of_document: str, tagged_sources: Sequence[int] = ()) -> np.ndarray:
    """Rows of each piece in its window, int64 [pieces]: prefix, tokens, end-of-document row."""
    ends = (pieces["flags"] & ENDS_DOCUMENT) > 0
    return prefix_rows(pieces, tagged_sources) + pieces["length"].astype(np.int64) + end_rows(end_of_document) * ends
