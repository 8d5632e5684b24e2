"""Documents that come as tokens: checked against the tokenizer, without BOS and EOS, as a store holds them."""

from __future__ import annotations

import numpy as np

from data_prep.read import EMPTY, Skipped, TokenDocument
from data_prep.tokenize.tokenizer import TokenizerInfo

OTHER_IDS = "token id outside the vocabulary"
OTHER_MASK = "mask of another length"


def plain_tokens(document: TokenDocument, info: TokenizerInfo) -> tuple[np.ndarray | Skipped, np.ndarray | None]:
    """The ids without leading anchors and trailing EOS, in the store's dtype, and the mask that goes with them.

    A store holds neither, because every piece gets its own; whoever made the data may have put in one
    or, by mistake, two. Inside a document they are tokens like others.
    """
    ids, mask = document.ids, document.mask
    if mask is not None and len(mask) != len(ids):
        return Skipped(document.line, OTHER_MASK, f"{len(ids)} tokens, {len(mask)} in the mask"), None
    if len(ids) and not (ids.min() >= 0 and ids.max() < info.vocab_size):
        wrong = ids.min() if ids.min() < 0 else ids.max()
        return Skipped(
            document.line, OTHER_IDS, f"{wrong}, of {info.vocab_size} tokens: made with another tokenizer?"
        ), None
    begin = _run(ids, info.anchor_id)
    end = len(ids) - _run(ids[begin:][::-1], info.eos_id)
    if begin == end:
        return Skipped(document.line, EMPTY, "no token but BOS and EOS"), None
    kept = None if mask is None else np.asarray(mask[begin:end], dtype=bool)
    return ids[begin:end].astype(info.dtype), kept


def _run(ids: np.ndarray, token: int) -> int:
    """How many of the first ids are this token."""
    others = np.flatnonzero(ids != token)
    return int(others[0]) if len(others) else len(ids)
