"""Cutting documents: only those longer than a window, rows counted exactly, nothing lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.pack.pieces import ENDS_DOCUMENT, STARTS_DOCUMENT, Documents, cut_pieces, piece_rows


def _documents(lengths: list[int]) -> Documents:
    length = np.array(lengths, dtype=np.int64)
    count = len(lengths)
    return Documents(
        source=np.arange(count, dtype=np.uint32) % 2,
        shard=np.arange(count, dtype=np.uint32) % 3,
        start=np.cumsum(length) - length,
        length=length,
        number=np.arange(count, dtype=np.uint64) + 100,
    )


def _cut(length: int, window: int, ending: str) -> list[tuple[int, int, int]]:
    """Start, length and rows of the pieces of one document."""
    pieces = cut_pieces(_documents([length]), window, ending)
    columns = (pieces["start"], pieces["length"], piece_rows(pieces, ending))
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (1, [(0, 1, 3)]),
        (6, [(0, 6, 8)]),  # N - 2 tokens, an anchor and an EOS fill the window
        (7, [(0, 6, 7), (6, 1, 3)]),  # the EOS alone would have no token before it
        (8, [(0, 7, 8), (7, 1, 3)]),
        (13, [(0, 7, 8), (7, 6, 8)]),
        (14, [(0, 7, 8), (7, 6, 7), (13, 1, 3)]),
        (16, [(0, 7, 8), (7, 7, 8), (14, 2, 4)]),
    ],
)
def test_pieces_with_an_end_of_document_row(length: int, expected: list[tuple[int, int, int]]) -> None:
    assert _cut(length, 8, "eos") == expected


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (1, [(0, 1, 2)]),
        (7, [(0, 7, 8)]),
        (8, [(0, 7, 8), (7, 1, 2)]),
        (14, [(0, 7, 8), (7, 7, 8)]),
        (15, [(0, 7, 8), (7, 7, 8), (14, 1, 2)]),
    ],
)
def test_pieces_without(length: int, expected: list[tuple[int, int, int]]) -> None:
    assert _cut(length, 8, "none") == expected


@given(st.lists(st.integers(1, 70), max_size=20), st.integers(4, 24), st.sampled_from(["eos", "none"]))
def test_every_token_is_in_exactly_one_piece_and_only_long_documents_are_cut(
    lengths: list[int], window: int, ending: str
) -> None:
    documents = _documents(lengths)
    pieces = cut_pieces(documents, window, ending)
    rows = piece_rows(pieces, ending)
    assert not len(rows) or rows.max() <= window
    for number, length in enumerate(lengths):
        mine = pieces[pieces["document"] == number + 100]
        tokens = [token for piece in mine for token in range(piece["start"], piece["start"] + piece["length"])]
        begin = int(documents.start[number])
        assert tokens == list(range(begin, begin + length))
        assert mine["length"].min() >= 1
        assert set(mine["source"]) == {number % 2}
        assert set(mine["shard"]) == {number % 3}
        assert (mine["flags"] & STARTS_DOCUMENT).astype(bool).tolist() == [True] + [False] * (len(mine) - 1)
        assert (mine["flags"] & ENDS_DOCUMENT).astype(bool).tolist() == [False] * (len(mine) - 1) + [True]
        whole = 1 + length + (ending == "eos")
        assert (len(mine) > 1) == (whole > window)
        # A cut document fills its windows: all but the last, up to the one row that keeps an EOS company.
        full = rows[pieces["document"] == number + 100][:-1]
        assert (full[:-1] == window).all()
        assert not len(full) or full[-1] >= window - (ending == "eos")


@pytest.mark.parametrize("length", [65_535, 65_536, 5_000_000])
def test_documents_longer_than_16_bits(length: int) -> None:
    pieces = cut_pieces(_documents([3, length, 2]), 8193, "eos")
    mine = pieces[pieces["document"] == 101]
    assert int(mine["length"].sum()) == length
    assert int(mine["start"][-1] + mine["length"][-1]) == 3 + length
