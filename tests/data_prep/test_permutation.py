"""Seeded permutations: golden values, so that a run can be continued on any machine."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_prep.permutation import seeded_keys, seeded_permutation


def test_golden_values_never_change() -> None:
    assert seeded_keys(3, "golden", 7).tolist() == [17477399707431472477, 16289972197650473051, 16170460266521376480]
    assert seeded_permutation(8, "golden", 7).tolist() == [5, 3, 6, 4, 2, 1, 0, 7]


@given(st.integers(0, 300), st.integers(0, 2**70))
def test_is_a_permutation_and_pure(count: int, seed: int) -> None:
    permutation = seeded_permutation(count, "p", seed)
    assert permutation.dtype == np.int64
    assert sorted(permutation.tolist()) == list(range(count))
    assert permutation.tolist() == seeded_permutation(count, "p", seed).tolist()


def test_every_part_of_the_seed_counts() -> None:
    orders = {tuple(seeded_permutation(50, *seed)) for seed in (("a", 1), ("a", 2), ("b", 1), ("a", 1, 0), ("a1",))}
    assert len(orders) == 5
