"""Documents by their lengths, and what was packed of them, for the tests of packing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_prep.pack.build import PackedSplit, pack_split
from data_prep.pack.options import PackOptions
from data_prep.pack.pieces import ENDS_DOCUMENT, INNER_CHUNK, STARTS_DOCUMENT, Documents, piece_rows

WHOLE = STARTS_DOCUMENT | ENDS_DOCUMENT


def documents_of(*lengths: Sequence[int]) -> Documents:
    """Documents of one or several sources, behind one another in one shard a source."""
    arrays = [np.array(of_source, dtype=np.int64) for of_source in lengths]
    return Documents(
        source=np.repeat(np.arange(len(arrays), dtype=np.uint32), [len(array) for array in arrays]),
        shard=np.zeros(sum(map(len, arrays)), dtype=np.uint32),
        start=np.concatenate([np.cumsum(array) - array for array in arrays]),
        length=np.concatenate(arrays),
        number=np.arange(sum(map(len, arrays)), dtype=np.uint64),
    )


def packed(documents: Documents, options: PackOptions, split: str = "train") -> PackedSplit:
    names = names_of(documents)
    return pack_split(documents, names, options, split, total_documents=len(documents))


def names_of(documents: Documents) -> list[str]:
    return [f"source{number}" for number in range(int(documents.source.max()) + 1)]


def check_split(documents: Documents, options: PackOptions, found: PackedSplit) -> None:
    """What holds for every algorithm and policy: rows counted exactly, no token twice, all accounted for."""
    pieces, names = found.pieces, names_of(documents)
    tagged = options.tagged_sources(names)
    rows = piece_rows(pieces, options.end_of_document, tagged)
    windows = np.repeat(np.arange(len(found.window_ends)), np.diff(found.window_ends.astype(np.int64), prepend=0))
    assert len(windows) == len(pieces)
    used = np.bincount(windows, weights=rows, minlength=len(found.window_ends))
    assert not len(used) or (used.min() > 0 and used.max() <= options.window_tokens)
    assert (pieces["length"] > 0).all()
    assert found.totals["rows"] == rows.sum()
    assert found.totals["padding_rows"] == len(found.window_ends) * options.window_tokens - rows.sum()

    length_of = dict(zip(documents.number.tolist(), documents.length.tolist(), strict=True))
    start_of = dict(zip(documents.number.tolist(), documents.start.tolist(), strict=True))
    for copy in np.unique(pieces["document"]).tolist():
        mine = pieces[pieces["document"] == copy]
        mine = mine[np.argsort(mine["start"])]
        ends = (mine["start"] + mine["length"]).astype(np.int64)
        begin = start_of[copy % len(documents)]
        assert (mine["start"][1:] >= ends[:-1]).all()
        starts, finishes = (mine["flags"] & STARTS_DOCUMENT) > 0, (mine["flags"] & ENDS_DOCUMENT) > 0
        assert not starts[1:].any()
        assert not finishes[:-1].any()
        assert starts[0] == (mine["start"][0] == begin)
        if finishes[-1]:
            assert ends[-1] == begin + length_of[copy % len(documents)]
        first_in_window = np.unique(windows[pieces["document"] == copy], return_index=True)[1]
        inner = (pieces["flags"][pieces["document"] == copy] & INNER_CHUNK) > 0
        assert not inner[first_in_window].any()
        assert inner.sum() == len(inner) - len(first_in_window)


def check_account(documents: Documents, found: PackedSplit) -> None:
    """In + repeated = packed + dropped, from the pieces themselves."""
    for source, figures in enumerate(found.per_source):
        mine = found.pieces[found.pieces["source"] == source]
        of_source = documents.source == source
        assert figures["documents_in"] == of_source.sum()
        assert figures["tokens_in"] == documents.length[of_source].sum()
        assert figures["tokens"] == mine["length"].sum()
        assert figures["documents"] == len(np.unique(mine["document"]))
        for name in ("documents", "tokens"):
            dropped = sum(counts[name] for counts in figures["dropped"].values())
            assert figures[f"{name}_in"] + figures["repeated"][name] == figures[name] + dropped
        copies = mine[mine["document"] >= len(documents)]
        repeated = {"documents": len(np.unique(copies["document"])), "tokens": int(copies["length"].sum())}
        if not any("last window" in reason for reason in figures["dropped"]):
            assert figures["repeated"] == repeated
        lengths = figures["lengths"]
        assert sum(lengths["documents_in"]) == figures["documents_in"]
        assert sum(lengths["tokens_in"]) == figures["tokens_in"]
        assert sum(lengths["pieces"]) == figures["pieces"]
        assert sum(lengths["tokens"]) == figures["tokens"]
