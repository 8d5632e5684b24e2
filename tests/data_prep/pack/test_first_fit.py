"""First-fit: equal to the plain algorithm, and fast."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_prep.pack.first_fit import first_fit


def _plain(lengths: list[int], capacity: int) -> list[int]:
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
def test_equals_the_plain_algorithm(case: tuple[int, list[int]]) -> None:
    capacity, lengths = case
    assert first_fit(np.array(lengths, dtype=np.int64), capacity).tolist() == _plain(lengths, capacity)


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
