"""Interleaved chunks: the same tokens in the same windows, a document's own in their order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_prep.pack.interleave import interleave
from data_prep.pack.options import PackOptions
from data_prep.pack.pieces import INNER_CHUNK
from tests.data_prep.pack.cases import check_split, documents_of, packed


@given(st.lists(st.integers(1, 60), min_size=1, max_size=15), st.integers(1, 9), st.integers(0, 3))
def test_windows_keep_their_tokens(lengths: list[int], chunk: int, seed: int) -> None:
    documents, whole = documents_of(lengths), PackOptions(32, seed=seed)
    options = PackOptions(32, seed=seed, interleave_chunk_tokens=chunk)
    before, after = packed(documents, whole), packed(documents, options)
    check_split(documents, options, after)
    assert after.pieces["length"].max() <= chunk

    def tokens(found: object) -> list[set[int]]:
        windows = np.split(found.pieces, found.window_ends[:-1].astype(int))  # type: ignore[attr-defined]
        return [
            {t for p in window for t in range(int(p["start"]), int(p["start"] + p["length"]))} for window in windows
        ]

    assert tokens(before) == tokens(after)
    for window in np.split(after.pieces, after.window_ends[:-1].astype(int)):
        for document in np.unique(window["document"]):
            mine = window[window["document"] == document]
            assert (np.diff(mine["start"].astype(int)) == chunk).all()  # in order, every chunk but the last whole


def test_chunks_of_several_documents_alternate() -> None:
    found = packed(documents_of([60, 60]), PackOptions(128, interleave_chunk_tokens=4))
    documents = found.pieces["document"]
    assert len(documents) == 30
    assert 5 < (documents[1:] != documents[:-1]).sum() < 29
    assert ((found.pieces["flags"] & INNER_CHUNK) > 0).sum() == 28


def test_the_seed_decides() -> None:
    pieces = packed(documents_of([60, 60]), PackOptions(128)).pieces
    zeros = np.zeros(2, dtype=np.int64)
    first, second, again = (interleave(pieces, zeros, 4, seed)[0]["document"].tolist() for seed in (0, 1, 0))
    assert first == again != second
