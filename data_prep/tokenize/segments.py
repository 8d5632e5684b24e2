"""Long texts in segments whose ids, joined, are those of the whole text: memory stays bounded.

A text may be cut where words end for sure, between a letter and a space or a mark. Which cuts a given
tokenizer bears is tried out (`choose_cuts`), in the order from the most places to the fewest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

Encode = Callable[[Sequence[str]], list[np.ndarray]]
"""Texts -> ids of each, without special tokens."""

SEGMENT_CHARACTERS = 1 << 19

# Letters that every table of Unicode has had for long, and neither case nor script makes a difference.
_LETTER = (
    "[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u0391-\u03a1\u03b1-\u03c9\u0410-\u044f\u05d0-\u05ea\u0627-\u063a"
    "\u3042-\u3093\u30a2-\u30f3\u4e00-\u9fa5\uac00-\ud7a3]"
)
_MARK = '[ \n\t.,;:!?()"/<>=+*0-9\u3001\u3002\uff0c\uff01\uff1f]'
_SPACE_IN_TOKEN = re.compile(f"{_LETTER}[ \u0120\u2581]")  # as text, byte-level or sentencepiece write it


@dataclass(frozen=True)
class Cuts:
    """Where a text may be cut.

    Attributes:
        places: a regular expression whose matches end where a segment may end.
        drops_space: the next segment begins behind the space at the cut, because the tokenizer puts
            one before every text by itself.
    """

    places: str
    drops_space: bool

    def segments(self, text: str, characters: int) -> Iterator[str]:
        """Cut at the first place behind every `characters`; one segment where there is none."""
        find = re.compile(self.places).search
        begin = 0
        while place := find(text, begin + characters - 1):
            yield text[begin : place.end()]
            begin = place.end() + self.drops_space
        if begin < len(text):
            yield text[begin:]


_KINDS = (
    Cuts(f"{_LETTER}(?={_MARK})", drops_space=False),
    Cuts(f"{_LETTER}(?= )", drops_space=False),
    Cuts(f"{_LETTER}(?= {_LETTER})", drops_space=True),
)


def choose_cuts(encode: Encode, texts: Sequence[str], tokens: Iterable[str]) -> Cuts | None:
    """The kind of cuts that changes no id of any of `texts`, cut wherever it can be; None if every kind does.

    Args:
        tokens: the vocabulary; a token that holds a word and the space behind it rules cuts out.
    """
    if any(_SPACE_IN_TOKEN.search(token) for token in tokens):
        return None
    whole = encode(texts)
    for cuts in _KINDS:
        for text, ids in zip(texts, whole, strict=True):
            if not np.array_equal(join(encode(list(cuts.segments(text, 1))), ids), ids):
                break
        else:
            return cuts
    return None


def join(arrays: Sequence[np.ndarray], like: np.ndarray | None = None) -> np.ndarray:
    """One array of several; of none, an empty one of the dtype of `like`."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=None if like is None else like.dtype)
