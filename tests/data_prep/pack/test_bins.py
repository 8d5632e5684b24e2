"""Placing items in bins: best-fit decreasing against a plain version of it, and first-fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.pack import bins as bins_module
from data_prep.pack.bins import _RoomTree, best_fit_decreasing, first_fit


def _plain(lengths: list[int], capacity: int) -> list[int]:
    """One item after another: the tightest bin that fits, of equal ones the one that is so longest."""
    room: list[tuple[int, int]] = []  # of each bin: what is left, and when it became that
    bins = [0] * len(lengths)
    for moment, item in enumerate(sorted(range(len(lengths)), key=lambda item: -lengths[item])):
        fitting = [(left, since, number) for number, (left, since) in enumerate(room) if left >= lengths[item]]
        if fitting:
            left, _, number = min(fitting)
        else:
            left, number = capacity, len(room)
            room.append((capacity, moment))
        room[number] = (left - lengths[item], moment)
        bins[item] = number
    return bins


def test_golden_bins() -> None:
    assert best_fit_decreasing(np.array([8, 6, 6, 4, 3, 2, 3]), 8).tolist() == [0, 1, 2, 3, 3, 1, 4]


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(1, n), max_size=60))))
def test_best_fit_equals_the_plain_algorithm(case: tuple[int, list[int]]) -> None:
    capacity, lengths = case
    assert best_fit_decreasing(np.array(lengths, dtype=np.int64), capacity).tolist() == _plain(lengths, capacity)


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=50))
def test_no_bin_overflows_and_none_is_empty(lengths: list[int]) -> None:
    bins = best_fit_decreasing(np.array(lengths), 131_072)
    filled = np.bincount(bins, weights=lengths)
    assert filled.max() <= 131_072
    assert filled.min() > 0


@given(st.integers(1, 5000), st.data())
def test_rooms_are_found_as_in_a_sorted_list(capacity: int, data: st.DataObject) -> None:
    tree, kept = _RoomTree(capacity), set()
    for number, keep in data.draw(st.lists(st.tuples(st.integers(1, capacity), st.booleans()), max_size=40)):
        if keep:
            tree.add(number)
            kept.add(number)
        else:
            tree.remove(number)
            kept.discard(number)
    for bound in data.draw(st.lists(st.integers(1, capacity), max_size=10)):
        assert tree.first_from(bound) == min((number for number in kept if number >= bound), default=None)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Counts searches for a bin, and the words of the tree that they look at."""
    counts = {"searches": 0, "words": 0}
    first_from, lowest_bit = _RoomTree.first_from, bins_module._lowest_bit

    def counted_search(tree: _RoomTree, bound: int) -> int | None:
        counts["searches"] += 1
        return first_from(tree, bound)

    def counted_word(word: int) -> int:
        counts["words"] += 1
        return lowest_bit(word)

    monkeypatch.setattr(_RoomTree, "first_from", counted_search)
    monkeypatch.setattr(bins_module, "_lowest_bit", counted_word)
    return counts


def test_a_document_costs_a_few_steps_however_many_there_are(steps: dict[str, int]) -> None:
    lengths = np.random.default_rng(0).integers(2, 65_537, 200_000)
    bins = best_fit_decreasing(lengths, 65_536)
    assert steps["searches"] <= len(lengths) + len(np.unique(lengths))
    assert steps["words"] <= 3 * steps["searches"]  # 64 ** 3 rooms: a word a level
    fewest = max(lengths.sum() / 65_536, (lengths > 32_768).sum())  # each of the larger half needs a bin of its own
    assert bins.max() + 1 < 1.005 * fewest


def test_documents_of_one_length_are_placed_together(steps: dict[str, int]) -> None:
    """Steps go by bins at the most, and not by documents."""
    lengths = np.random.default_rng(0).choice([30_000, 20_000, 700, 30, 7], 200_000)
    bins = best_fit_decreasing(lengths, 65_536)
    assert steps["searches"] <= bins.max() < len(lengths) / 5


def _plain_first_fit(lengths: list[int], capacity: int) -> list[int]:
    room: list[int] = []
    bins = []
    for length in lengths:
        number = next((number for number, left in enumerate(room) if left >= length), len(room))
        if number == len(room):
            room.append(capacity)
        room[number] -= length
        bins.append(number)
    return bins


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(1, n), max_size=60))))
def test_first_fit_equals_the_plain_algorithm(case: tuple[int, list[int]]) -> None:
    capacity, lengths = case
    assert first_fit(np.array(lengths, dtype=np.int64), capacity).tolist() == _plain_first_fit(lengths, capacity)


class _Room(int):
    """Counts the comparisons that are made with what is left in a bin, or in some."""

    comparisons = 0

    def __sub__(self, other: int) -> _Room:
        return _Room(int(self) - other)

    def __lt__(self, other: int) -> bool:
        _Room.comparisons += 1
        return int(self) < other

    def __gt__(self, other: int) -> bool:
        _Room.comparisons += 1
        return int(self) > other


def test_a_document_looks_at_few_bins_however_many_there_are() -> None:
    lengths = np.random.default_rng(0).integers(2, 65_537, 5_000)
    _Room.comparisons = 0
    bins = first_fit(lengths, _Room(65_536))
    assert bins.max() > 2_000
    assert len(lengths) < _Room.comparisons <= 2 * 13 * len(lengths)  # 2 ** 13 leaves: down the tree and up again
