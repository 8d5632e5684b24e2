"""The order of windows: a pure function, each window once an epoch, and a state that goes on by seeking."""

from __future__ import annotations

from dataclasses import replace

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
