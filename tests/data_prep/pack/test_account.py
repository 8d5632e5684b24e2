"""Figures: golden values of f(i), work, histograms, and the share of a mixture."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_prep.pack.account import distance_frequency, window_work
from data_prep.pack.options import PackOptions
from data_prep.pack.pieces import piece_rows
from tests.data_prep.pack.cases import documents_of, packed


def test_golden_distance_frequency() -> None:
    assert distance_frequency(np.array([4]), np.arange(5)).tolist() == [4, 3, 2, 1, 0]


@given(st.lists(st.integers(1, 50), max_size=20))
def test_distance_frequency_is_its_formula(lengths: list[int]) -> None:
    distances = np.arange(60)
    expected = [sum(max(length - distance, 0) for length in lengths) for distance in distances]
    assert distance_frequency(np.array(lengths, dtype=np.int64), distances).tolist() == expected


def test_work_is_the_sum_of_squared_rows_however_a_document_is_interleaved() -> None:
    documents = documents_of([10, 5, 20, 3, 28])
    whole, mixed = (packed(documents, PackOptions(32, interleave_chunk_tokens=chunk)) for chunk in (0, 4))
    for found in (whole, mixed):
        windows = np.repeat(np.arange(len(found.window_ends)), np.diff(found.window_ends.astype(int), prepend=0))
        work = window_work(found.pieces, piece_rows(found.pieces, "eos"), windows)
        assert sorted(work.tolist()) == sorted([30**2, 22**2 + 7**2, 12**2 + 5**2])
        assert found.totals["work"]["total"] == work.sum()
        assert found.totals["work"]["max"] == 30**2
        assert found.totals["work"]["one_document"] == 32**2
        assert sum(found.totals["work"]["windows_by_share"]) == 3
    assert whole.totals == mixed.totals


def test_histograms_before_and_after() -> None:
    lengths = packed(documents_of([1, 2, 3, 4, 7, 8, 40]), PackOptions(16)).totals["lengths"]
    assert lengths["documents_in"] == [1, 2, 2, 1, 0, 1]
    assert lengths["tokens_in"] == [1, 5, 11, 8, 0, 40]
    assert lengths["pieces"] == [1, 2, 2, 4, 0, 0]  # 40 tokens in pieces of 15, 15 and 10
    assert lengths["tokens"] == [1, 5, 11, 48, 0, 0]


def test_figures_are_json() -> None:
    found = packed(documents_of([5, 9], [30]), PackOptions(16, mixture={"source0": 1, "source1": 1}))
    assert json.loads(json.dumps([found.totals, found.per_source])) == [found.totals, found.per_source]
    assert found.per_source[1]["share"] == {"weight": 0.5, "target_tokens": 14, "available_tokens": 30, "fraction": 1.0}
    assert found.per_source[1]["dropped"] == {"more than the mixture needs": {"documents": 0, "tokens": 15}}
