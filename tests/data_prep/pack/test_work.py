"""Attention work of windows from their pieces."""

from __future__ import annotations

import numpy as np

from data_prep.pack.work import window_work


def test_pieces_of_a_document_in_a_window_count_as_one() -> None:
    documents = np.array([7, 8, 7, 7, 9])
    rows = np.array([2, 3, 4, 5, 1])
    assert window_work(documents, rows, np.array([3, 3, 5])).tolist() == [(2 + 4) ** 2 + 3**2, 0, 5**2 + 1]


def test_neighbouring_windows_of_one_document_stay_apart() -> None:
    assert window_work(np.array([7, 7]), np.array([2, 3]), np.array([1, 2])).tolist() == [4, 9]


def test_no_overflow_and_no_windows() -> None:
    assert window_work(np.array([0], dtype=np.uint64), np.array([2**20]), np.array([1])).tolist() == [2**40]
    assert window_work(np.empty(0), np.empty(0), np.empty(0)).tolist() == []
