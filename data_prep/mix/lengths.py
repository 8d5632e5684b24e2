"""Length upsampling: long documents gain weight where short ones are thinned out.

Keeping a tenth of the documents below 4,096 tokens, source by source, is how the data of "Data
Engineering for Scaling Language Models to 128K Context" (arXiv 2402.10171) was made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data_prep.errors import DataError


@dataclass(frozen=True)
class LengthRule:
    """Which documents of a source are taken, by their length.

    Attributes:
        min_document_tokens: shorter documents are dropped.
        upsample_from_tokens: documents from this length on are all kept; 0: no upsampling.
        keep_short_fraction: chance of a shorter document to be kept; training data alone.

    Raises:
        DataError: a value out of range, or one that has no effect.
    """

    min_document_tokens: int = 1
    upsample_from_tokens: int = 0
    keep_short_fraction: float = 1.0

    def __post_init__(self) -> None:
        if self.min_document_tokens < 1:
            raise DataError(f"min_document_tokens={self.min_document_tokens}: a document has at least 1 token")
        if self.upsample_from_tokens < 0:
            raise DataError(f"upsample_from_tokens={self.upsample_from_tokens} is less than 0")
        if not 0 <= self.keep_short_fraction <= 1:
            raise DataError(f"keep_short_fraction={self.keep_short_fraction} is not in 0 <= fraction <= 1")
        if (self.upsample_from_tokens > 0) != (self.keep_short_fraction < 1):
            raise DataError(
                f"upsample_from_tokens={self.upsample_from_tokens} and keep_short_fraction={self.keep_short_fraction} "
                "have an effect only together: give both, such as 4096 and 0.1"
            )


def keep_short(lengths: np.ndarray, keys: np.ndarray, upsample_from_tokens: int, fraction: float) -> np.ndarray:
    """Which documents are kept, bool [documents].

    Args:
        lengths: tokens of each.
        keys: a pseudo-random uint64 of each, which decides.
    """
    chosen = keys < np.uint64(min(int(fraction * 2.0**64), 2**64 - 1))
    return (lengths >= upsample_from_tokens) | (chosen if fraction < 1 else True)
