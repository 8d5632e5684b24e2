"""First-fit: equal to the plain algorithm, and fast."""

from __future__ import annotations

import time

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


def test_time_grows_hardly_with_the_number_of_bins() -> None:
    lengths = np.random.default_rng(0).integers(2, 65_537, 100_000)
    began = time.process_time()
    first_fit(lengths, 65_536)
    assert time.process_time() - began < 5
