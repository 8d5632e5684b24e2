"""Which rows a rank computes at a step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from anchorcontext.data.order import WindowOrder
from anchorcontext.layout import WindowLayout
from anchorcontext.train.batches import Batches, StepBatch, check_shared
from anchorcontext.train.ranks import Ranks, join_ranks
from tests.train.fakes import ANCHOR, FakeWindows, alone, train_config
from tests.workers import run_on


def batches(ranks: Ranks, **changes: object) -> Batches:
    return Batches(FakeWindows(), train_config(**changes), ranks)


@pytest.mark.parametrize("data_size", [1, 2, 3])
@pytest.mark.parametrize("micro_windows", [1, 2])
@pytest.mark.parametrize("balance_steps", [0, 2])
def test_a_step_takes_its_windows_whatever_the_ranks(data_size: int, micro_windows: int, balance_steps: int) -> None:
    changes = {"training__windows_per_step": 6, "training__micro_batch_windows": micro_windows}
    changes["order__balance_steps"] = balance_steps
    work = FakeWindows().attention_work
    order = WindowOrder("fake", 0, 12, balance_steps=balance_steps, windows_per_step=6, work=work)
    for step in (1, 2, 3, 5):
        taken = [
            number
            for rank in range(data_size)
            for number in batches(alone(rank=rank, world_size=data_size), **changes).window_numbers(step)
        ]
        assert taken == [order.window(number) for number in range((step - 1) * 6, step * 6)]
    made = batches(alone(world_size=data_size), **changes)
    assert made.micro_batches == 6 // data_size // micro_windows
    assert made.state_after(3) == order.state(18)


def test_ranks_of_a_window_hold_its_rows_once() -> None:
    """The shares of three ranks, put together, are the whole row with its positions and labels."""
    rows: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for rank in range(3):
        shared = batches(alone(rank=rank, world_size=3, context_size=3), context_parallel__size=3)
        for number, made in enumerate(shared._make(1)):
            assert made.input_ids.shape == made.position_ids.shape == made.labels.shape == (1, 32)
            order = made.plan.row_order(rank)
            for row, *values in zip(order, made.input_ids[0], made.position_ids[0], made.labels[0], strict=True):
                rows.setdefault((number, int(row)), []).append(tuple(int(value) for value in values))
    windows = FakeWindows()
    numbers = batches(alone()).window_numbers(1)
    for number, window in enumerate(windows[index] for index in numbers):
        layout = WindowLayout.concatenate([window.layout("anchor")])
        expected = zip(window.input_ids, layout.position_ids, layout.shift_labels(window.input_ids), strict=True)
        for row, values in enumerate(expected):
            assert rows.pop((number, row)) == [tuple(int(value) for value in values)]
    assert not rows


def test_padding_of_a_share() -> None:
    made = batches(alone(rank=4, world_size=5, context_size=5), context_parallel__size=5)._make(1)[0]
    padding = made.plan.row_order(4) < 0
    assert padding.any()
    assert (made.input_ids[0, padding] == ANCHOR).all()
    assert (made.position_ids[0, padding] == 0).all()
    assert (made.labels[0, padding] == -100).all()


def test_counts_and_prefetch() -> None:
    """Steps come in order, and their counts are those of the windows."""
    shared = batches(alone(), training__micro_batch_windows=3)
    windows = FakeWindows()
    for step, batch in enumerate(shared.steps(2, 4), start=2):
        assert batch.step == step
        layouts = [windows[number].layout("anchor") for number in shared.window_numbers(step)]
        assert batch.tokens == sum(int(layout.piece_lengths.sum()) for layout in layouts)
        assert batch.valid_labels == sum(int((layout.target_rows >= 0).sum()) for layout in layouts)
        assert len(batch.micro_batches) == 4
    assert list(shared.steps(3, 2)) == []


def test_a_failure_in_the_background_reaches_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = batches(alone())
    monkeypatch.setattr(FakeWindows, "__getitem__", lambda self, index: (_ for _ in ()).throw(OSError("disk gone")))
    with pytest.raises(OSError, match="disk gone"):
        next(shared.steps(1, 2))


def check_on_rank(context_size: int, changed_rank: int) -> str:
    with join_ranks(context_size) as ranks:
        windows = FakeWindows()
        if ranks.rank == changed_rank:
            for window in windows.windows:
                window.input_ids[3] += 1
        config = train_config(context_parallel__size=context_size)
        (batch,) = Batches(windows, config, ranks).steps(1, 1)
        try:
            check_shared(batch, ranks)
        except RuntimeError as error:
            return str(error)
    return ""


def test_ranks_that_read_different_windows_are_found() -> None:
    assert run_on(2, check_on_rank, 2, -1) == ["", ""]
    for message in run_on(2, check_on_rank, 2, 1):
        assert "step 1: ranks 0 and 1 share windows, but have read different tokens" in message
    assert run_on(2, check_on_rank, 1, 1) == ["", ""]  # data-parallel ranks are meant to differ


def test_loss_mask_reaches_the_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = FakeWindows()
    masked = torch.zeros(96, dtype=torch.bool)
    for number, window in enumerate(windows.windows[:6]):
        windows.windows[number] = type(window)(**{**vars(window), "loss_mask": masked})

    def made() -> Iterator[StepBatch]:
        return Batches(windows, train_config(training__micro_batch_windows=12), alone()).steps(1, 1)

    layouts = [window.layout("anchor") for window in windows.windows[6:]]
    assert next(made()).valid_labels == sum(int((layout.target_rows >= 0).sum()) for layout in layouts)


def test_the_length_of_a_run_is_said_in_tokens_and_epochs() -> None:
    batches = Batches(FakeWindows(count=8), train_config(training__windows_per_step=2), alone())
    assert batches.describe(3) == "3 steps x 2 windows = up to 576 tokens, 0.75 epochs of the index's 8 windows"
    assert batches.describe(5).endswith("1.25 epochs of the index's 8 windows: windows are seen up to 2 times")
