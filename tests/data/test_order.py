"""The order of windows: a pure function, each window once an epoch, and a state that goes on by seeking."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorcontext.data.order import DataState, WindowOrder, window_order
from data_prep.errors import DataError


def test_golden_order_never_changes() -> None:
    assert window_order("a1b2", 3, 0, 10).tolist() == [5, 4, 6, 2, 3, 1, 7, 8, 0, 9]
    assert window_order("a1b2", 3, 1, 10).tolist() == [3, 5, 7, 4, 2, 6, 8, 9, 0, 1]


@given(st.integers(1, 60), st.integers(0, 3))
def test_every_window_once_an_epoch(num_windows: int, seed: int) -> None:
    order = WindowOrder("hash", seed, num_windows)
    for epoch in range(3):
        seen = [order.window(index) for index in range(epoch * num_windows, (epoch + 1) * num_windows)]
        assert sorted(seen) == list(range(num_windows))
        assert seen == window_order("hash", seed, epoch, num_windows).tolist()


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20))
def test_any_window_can_be_asked_for_in_any_order(indices: list[int]) -> None:
    order = WindowOrder("hash", 0, 37)
    assert [order.window(index) for index in indices] == [WindowOrder("hash", 0, 37).window(index) for index in indices]


def test_index_seed_and_epoch_each_change_the_order() -> None:
    orders = {
        tuple(window_order(index_hash, seed, epoch, 40))
        for index_hash in ("a", "b")
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len(orders) == 8


@given(st.integers(1, 30), st.integers(0, 200), st.integers(1, 7))
def test_a_run_continued_from_its_state_sees_what_it_would_have_seen(num_windows: int, done: int, batch: int) -> None:
    order = WindowOrder("hash", 0, num_windows)
    state = DataState.from_dict(order.state(done).to_dict())
    state.check(WindowOrder("hash", 0, num_windows))
    assert state.epoch == done // num_windows
    continued = WindowOrder("hash", 0, num_windows)
    expected = [order.window(index) for index in range(done, done + batch)]
    assert [continued.window(state.windows_consumed + index) for index in range(batch)] == expected


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"index_hash": "other"}, "index_hash: was other, now hash"),
        ({"seed": 4}, "seed: was 4, now 0"),
        ({"epoch": 5}, "epoch: was 5, now 2"),
    ],
)
def test_other_data_is_refused_by_name(changed: dict[str, object], message: str) -> None:
    order = WindowOrder("hash", 0, 10)
    with pytest.raises(DataError, match="the data changed since the checkpoint was saved") as error:
        replace(order.state(25), **changed).check(order)
    assert message in str(error.value)


def test_a_state_with_other_fields_is_refused() -> None:
    state = WindowOrder("hash", 0, 10).state(3).to_dict()
    state.pop("epoch")
    with pytest.raises(DataError, match="epoch"):
        DataState.from_dict(state)


def work_of(windows: np.ndarray) -> np.ndarray:
    """A made-up work of each window, all different up to 101 windows."""
    return windows * 37 % 101


def balanced(num_windows: int, steps: int, per_step: int, seed: int = 0) -> WindowOrder:
    return WindowOrder("hash", seed, num_windows, balance_steps=steps, windows_per_step=per_step, work=work_of)


def test_golden_balanced_order_never_changes() -> None:
    order = WindowOrder("a1b2", 3, 10, balance_steps=2, windows_per_step=2, work=work_of)
    assert order.windows(0, 20).tolist() == [5, 2, 4, 6, 7, 8, 3, 1, 0, 9, 3, 5, 4, 6, 7, 2, 9, 0, 8, 1]


@given(st.integers(1, 80), st.integers(1, 6), st.integers(1, 9))
def test_a_balanced_epoch_holds_every_window_once(num_windows: int, steps: int, per_step: int) -> None:
    order = balanced(num_windows, steps, per_step)
    for epoch in range(3):
        seen = order.windows(epoch * num_windows, (epoch + 1) * num_windows)
        assert sorted(seen.tolist()) == list(range(num_windows))


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20), st.integers(1, 6), st.integers(1, 9))
def test_any_window_of_a_balanced_order_can_be_asked_for(indices: list[int], steps: int, per_step: int) -> None:
    order = balanced(37, steps, per_step)
    assert [order.window(index) for index in indices] == [
        balanced(37, steps, per_step).window(index) for index in indices
    ]


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 3))
def test_a_block_keeps_its_windows_and_its_steps_are_cut_from_the_sorted_ones(
    steps: int, per_step: int, seed: int
) -> None:
    per_block = steps * per_step
    order, plain = balanced(3 * per_block, steps, per_step, seed), WindowOrder("hash", seed, 3 * per_block)
    for first in range(0, 3 * per_block, per_block):
        block = order.windows(first, first + per_block)
        assert set(block.tolist()) == set(plain.windows(first, first + per_block).tolist())
        cut = work_of(block).reshape(steps, per_step)
        cut = cut[np.argsort(cut.min(axis=1))]
        assert np.sort(cut, axis=1).ravel().tolist() == sorted(cut.ravel().tolist())


def test_a_step_over_the_end_of_an_epoch_has_windows_of_both() -> None:
    order = balanced(10, 2, 4)  # the third step takes two windows of each epoch
    first, second = order.windows(0, 10), order.windows(10, 20)
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(10))
    assert order.windows(8, 12).tolist() == [*first[8:].tolist(), *second[:2].tolist()]


def test_steps_of_a_balanced_block_are_permuted_not_sorted() -> None:
    means = work_of(balanced(96, 8, 12).windows(0, 96)).reshape(8, 12).mean(axis=1)
    assert means.tolist() != sorted(means.tolist())
    assert means.tolist() != sorted(means.tolist(), reverse=True)
    plain = work_of(WindowOrder("hash", 0, 96).windows(0, 96)).reshape(8, 12)
    assert np.ptp(means) > np.ptp(plain.mean(axis=1))


def test_windows_within_a_step_stand_as_in_the_permutation() -> None:
    """So no rank always has the lightest windows."""
    place = {window: place for place, window in enumerate(window_order("hash", 0, 0, 60).tolist())}
    for first in range(0, 60, 6):
        places = [place[window] for window in balanced(60, 5, 6).windows(first, first + 6).tolist()]
        assert places == sorted(places)
