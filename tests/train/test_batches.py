"""Which rows a rank computes at a step."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from anchorcontext.attention import KERNELS
from anchorcontext.attention.kernel_flash import FlashKernel
from anchorcontext.attention.varlen import varlen_rows
from anchorcontext.context_parallel import function
from anchorcontext.data.order import WindowOrder
from anchorcontext.layout import WindowLayout
from anchorcontext.models.attention_interface import register
from anchorcontext.models.loss import CausalLMLoss
from anchorcontext.rope import replace_rotary
from anchorcontext.train import batches as batches_module
from anchorcontext.train.batches import Batches, StepBatch, check_shared
from anchorcontext.train.ranks import Ranks, join_ranks
from tests.attention.empty_results import EmptyResults
from tests.models.tiny import tiny_model
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


class Traffic(TorchDispatchMode):
    """Notes operators that make the host wait for a device, and copies between devices."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self.copies: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket)
        if any(part in name for part in ("_local_scalar_dense", "nonzero", "unique", "is_nonzero")):
            self.waits.append(name)
            if args[0].device.type == "meta":
                return False  # there is no value: any will do
        devices = {tensor.device for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and devices and tensor.device not in devices:
                self.copies.append(name)
        if "copy" in name and len(devices) > 1:
            self.copies.append(name)
        return result


@pytest.fixture
def meta_batch(monkeypatch: pytest.MonkeyPatch) -> StepBatch:
    """A batch on device `meta`, which has no values to wait for, planned for a flash kernel that computes nothing."""
    kernel = FlashKernel("flash")
    kernel.__dict__.update(_functions=EmptyResults(), refusal=lambda device: None)
    monkeypatch.setitem(KERNELS, "flash", kernel)
    monkeypatch.setattr(function, "run_self_test", lambda *args: None)
    ranks = alone(device=torch.device("meta"))
    (batch,) = batches(ranks, attention__kernel="flash", training__precision="bf16").steps(1, 1)
    return batch


def test_nothing_waits_for_the_device_inside_a_layer(meta_batch: StepBatch) -> None:
    """No layer, forward or backward, reads a value back or copies between devices: the batch has brought it all.

    Outside layers transformers reads two values in each forward pass: whether positions say that a row is packed, and
    whether its mask sees ahead.
    """
    register()
    model = tiny_model(attn="anchor")
    replace_rotary(model)
    loss = CausalLMLoss(model.bfloat16().to("meta"), 50).train()
    around_layers: list[int] = []
    with Traffic() as traffic:
        for layer in model.model.layers:
            layer.register_forward_pre_hook(lambda *args: around_layers.append(len(traffic.waits)))
            layer.register_forward_hook(lambda *args: around_layers.append(len(traffic.waits)))
        for micro in meta_batch.micro_batches:
            loss_sum = loss(micro.input_ids, micro.position_ids, micro.labels, micro.context)
            before_backward = len(traffic.waits)
            loss_sum.backward()
            assert len(traffic.waits) == before_backward
    assert len(around_layers) == 4 * len(meta_batch.micro_batches)
    assert around_layers[::2] == around_layers[1::2]
    assert len(traffic.waits) <= 2 * len(meta_batch.micro_batches)
    assert traffic.copies == []
    assert all(parameter.grad is not None for parameter in loss.parameters())


def test_waits_and_copies_are_seen() -> None:
    """What the test above counts is what happens."""
    rows = torch.arange(4)
    with Traffic() as traffic:
        rows.sum().item()
        rows.nonzero()
        rows.to("meta")
        torch.empty(4, device="meta").copy_(rows)
    assert traffic.waits == ["aten._local_scalar_dense", "aten.nonzero"]
    assert len(traffic.copies) == 2


def test_indices_reach_the_device_once_a_batch(meta_batch: StepBatch) -> None:
    device = torch.device("meta")
    for micro in meta_batch.micro_batches:
        attention = micro.context.attention_on(device)
        (stage,) = micro.context.plan.stages(0)
        with Traffic() as traffic:
            assert micro.context.attention_on(device) is attention
            bounds = varlen_rows(stage.segments, device).query_bounds
        assert bounds.device == device
        assert traffic.copies == []


def test_the_next_batch_is_on_its_device_while_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[threading.Thread] = []
    third = threading.Event()

    def counting(tensor: Tensor, device: torch.device) -> Tensor:
        moved.append(threading.current_thread())
        if len(moved) == 6:
            third.set()
        return tensor.to(device)

    monkeypatch.setattr(batches_module, "to_device", counting)
    steps = batches(alone(), training__micro_batch_windows=12).steps(1, 3)
    next(steps)
    assert third.wait(timeout=60)  # the second step's three tensors, though nobody has asked for it
    steps.close()
    assert threading.main_thread() not in moved
