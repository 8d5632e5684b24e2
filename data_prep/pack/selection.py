"""Which documents of a split are packed, as pieces that fit a window; everything else into the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from data_prep.errors import DataError
from data_prep.mix import keep_short, shares_of, take_tokens
from data_prep.pack.account import BEHIND_HEAD, LONG, NOT_NEEDED, SHORT, THINNED, Ledger
from data_prep.pack.options import PackOptions
from data_prep.pack.pieces import Documents, cut_pieces, end_rows, head_pieces, prefix_rows_of_sources
from data_prep.permutation import seeded_keys

TRAIN = "train"


def select_pieces(
    documents: Documents,
    names: Sequence[str],
    options: PackOptions,
    split: str,
    ledger: Ledger,
    *,
    total_documents: int,
    fractions: Mapping[str, float],
) -> np.ndarray:
    """The pieces to pack, those of a document consecutive, `PIECE_DTYPE`.

    Length upsampling and mixture concern the training split alone: held-out documents stay as the
    corpus has them.

    Args:
        names: of the sources.
        total_documents: of all stores, which offsets the document numbers of repetitions.
        fractions: of each source, the share that was read.

    Raises:
        DataError: a source of which nothing is left, or too little for the mixture.
    """
    kept = _by_length(documents, names, options, split, ledger)
    if split == TRAIN:
        _check_left(documents, kept, names, options, fractions)
    tagged = options.tagged_sources(names)
    if options.long_documents == "head":
        pieces = head_pieces(kept, options.window_tokens, options.end_of_document, tagged)
        ledger.drop(BEHIND_HEAD, kept.source, kept.length - pieces["length"], whole=False)
    else:
        pieces = cut_pieces(kept, options.window_tokens, options.end_of_document, tagged)
    if split == TRAIN and (options.mixture or options.total_tokens is not None):
        pieces = _mix(pieces, names, options, split, ledger, total_documents, fractions)
    return pieces


def _by_length(
    documents: Documents, names: Sequence[str], options: PackOptions, split: str, ledger: Ledger
) -> Documents:
    """Documents that no rule on lengths leaves out."""
    keys = seeded_keys(len(documents), "keep_short", split, options.seed)
    short = np.zeros(len(documents), dtype=bool)
    thinned = np.zeros(len(documents), dtype=bool)
    for source, name in enumerate(names):
        rule, mine = options.length_rule(name), documents.source == source
        short[mine] = documents.length[mine] < rule.min_document_tokens
        if split == TRAIN and rule.upsample_from_tokens:
            thinned[mine] = ~keep_short(
                documents.length[mine], keys[mine], rule.upsample_from_tokens, rule.keep_short_fraction
            )
    rows = prefix_rows_of_sources(documents.source, options.tagged_sources(names)) + documents.length
    rows = rows + end_rows(options.end_of_document)
    long = (rows > options.window_tokens) & (options.long_documents == "drop")
    left = np.ones(len(documents), dtype=bool)
    for reason, chosen in ((SHORT, short), (LONG, long), (THINNED, thinned)):
        dropped = documents.select(chosen & left)
        ledger.drop(reason, dropped.source, dropped.length)
        left &= ~chosen
    return documents.select(left)


def _check_left(
    documents: Documents, kept: Documents, names: Sequence[str], options: PackOptions, fractions: Mapping[str, float]
) -> None:
    """Refuse a source whose every document a rule leaves out, before a mixture is made of the others.

    Of a sample nothing may be left: its account says so.
    """
    had = np.bincount(documents.source.astype(np.int64), minlength=len(names))
    has = np.bincount(kept.source.astype(np.int64), minlength=len(names))
    for source, name in enumerate(names):
        is_wanted = options.mixture.get(name, 1.0) > 0 and fractions.get(name, 1.0) == 1
        if had[source] and not has[source] and is_wanted:
            longest = int(documents.length[documents.source == source].max())
            raise DataError(
                f"source {name}: none of its {had[source]:,} documents is left (the longest has {longest:,} tokens): "
                f"{options.length_rule(name)}, long_documents={options.long_documents}. Change these, or leave the "
                "source out"
            )


def _mix(
    pieces: np.ndarray,
    names: Sequence[str],
    options: PackOptions,
    split: str,
    ledger: Ledger,
    total_documents: int,
    fractions: Mapping[str, float],
) -> np.ndarray:
    """Of every source as many pieces as the mixture wants; a repetition counts as another document."""
    of_source = [pieces[pieces["source"] == source] for source in range(len(names))]
    available = {name: int(mine["length"].sum()) for name, mine in zip(names, of_source, strict=True)}
    shares = shares_of(
        options.mixture or available,
        available,
        options.total_tokens,
        exhausted=options.exhausted,
        fractions=fractions,
    )
    ledger.shares = [shares[name] for name in names]
    mixed = []
    for name, mine in zip(names, of_source, strict=True):
        share = shares[name]
        target = share.target_tokens if options.exhausted == "repeat" else min(share.target_tokens, available[name])
        taken, repetition = take_tokens(mine["length"], mine["document"], target, "mixture", split, options.seed, name)
        chosen = mine[taken]
        again = repetition > 0
        left_out = np.ones(len(mine), dtype=bool)
        left_out[taken] = False
        enter_dropped(ledger, NOT_NEEDED, mine[left_out], mine[~left_out])
        chosen["document"] += (repetition * total_documents).astype(np.uint64)
        ledger.repeat(chosen["source"][again], chosen["length"][again], first_of_document(chosen[again]))
        mixed.append(chosen)
    return np.concatenate(mixed)


def enter_dropped(ledger: Ledger, reason: str, dropped: np.ndarray, kept: np.ndarray) -> None:
    """Enter pieces of which a document's others may be kept: then its tokens alone are dropped."""
    gone = ~np.isin(dropped["document"], kept["document"])
    ledger.drop(reason, dropped["source"], dropped["length"], gone & first_of_document(dropped))


def first_of_document(pieces: np.ndarray) -> np.ndarray:
    """Whether no piece before has the same document number, bool [pieces]."""
    first = np.zeros(len(pieces), dtype=bool)
    first[np.unique(pieces["document"], return_index=True)[1]] = True
    return first
