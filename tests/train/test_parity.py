"""One loss, one gradient, one norm: whatever the ranks, the ZeRO stage and the micro-batches.

The reference is torch autograd over all windows at once, without DeepSpeed and without ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from anchorcontext.context_parallel import plan_context
from anchorcontext.layout import WindowLayout
from anchorcontext.models.attention_interface import register
from anchorcontext.models.build import DTYPES, checkpoint_layers
from anchorcontext.models.loss import CausalLMLoss
from anchorcontext.rope import replace_rotary
from anchorcontext.train.batches import Batches
from tests.models.tiny import tiny_model
from tests.train.fakes import FakeWindows, alone, train_config
from tests.workers import run_on

STAGES = (0, 1, 2, 3)


@dataclass
class Step:
    """What one step gives before its update."""

    loss: float
    norm: float
    gradients: dict[str, Tensor]


def model(tied: bool, precision: str = "float32") -> CausalLMLoss:
    register()
    built = tiny_model(attn="anchor", tie_word_embeddings=tied)
    replace_rotary(built)
    return CausalLMLoss(built.to(DTYPES[precision]), chunk_rows=50)


def reference(arm: str, tied: bool) -> Step:
    windows = FakeWindows().windows
    layout = WindowLayout.concatenate([window.layout(arm) for window in windows])
    ids = torch.cat([window.input_ids for window in windows])
    labels = layout.shift_labels(ids)
    wrapped = model(tied)
    loss = wrapped(ids[None], layout.position_ids[None], labels[None], plan_context(layout, 1).bind(kernel="math"))
    loss = loss / (labels != -100).sum()
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in wrapped.named_parameters()}
    norm = torch.cat([gradient.flatten().double() for gradient in gradients.values()]).norm()
    return Step(loss.item(), norm.item(), gradients)


def on_engine(
    stage: int,
    context_size: int,
    micro_batches: int,
    arm: str,
    tied: bool,
    checkpointing: bool,
    precision: str = "float32",
    keep_attention: bool = False,
) -> Step:
    """The same step on a DeepSpeed engine, on this rank of a gloo world."""
    from deepspeed.utils import safe_get_full_grad

    from anchorcontext.train.engine import build_engine, take_step
    from anchorcontext.train.loop import forward_backward
    from anchorcontext.train.ranks import join_ranks

    with join_ranks(context_size) as ranks:
        config = train_config(
            attention__arm=arm,
            context_parallel__size=context_size,
            deepspeed__zero_stage=stage,
            training__precision=precision,
            training__micro_batch_windows=12 // ranks.data_size // micro_batches,
        )
        wrapped = model(tied, precision)
        if checkpointing:
            checkpoint_layers(wrapped.model, keep_attention=keep_attention)
        engine = build_engine(wrapped, config, micro_batches)
        (batch,) = Batches(FakeWindows(), config, ranks).steps(1, 1)
        assert len(batch.micro_batches) == micro_batches
        valid_labels = int(ranks.sum(batch.valid_labels)[0])
        loss = forward_backward(engine, batch, ranks, valid_labels)
        gradients = {
            name: (parameter.grad if stage == 0 else safe_get_full_grad(parameter)).clone()
            for name, parameter in wrapped.named_parameters()
        }
        norm = take_step(engine, 1e-3)
        engine.destroy()
    return Step(loss, norm, gradients if ranks.is_main else {})


def many_on_engine(cases: list[tuple[Any, ...]]) -> list[Step]:
    return [on_engine(*case) for case in cases]


def check(step: Step, expected: Step) -> None:
    assert step.loss == pytest.approx(expected.loss, rel=1e-6)
    assert step.norm == pytest.approx(expected.norm, rel=1e-6)
    assert step.gradients.keys() == expected.gradients.keys()
    for name, gradient in step.gradients.items():
        error = (gradient - expected.gradients[name]).norm() / expected.gradients[name].norm()
        assert error < 5e-6, f"gradient of {name}: relative L2 error {error:.2g}"


@pytest.mark.parametrize(
    ("world_size", "context_size", "counts"), [(1, 1, (1, 3)), (2, 1, (1, 3)), (2, 2, (1, 3)), (4, 2, (3,))]
)
def test_every_stage_and_micro_batch_count(world_size: int, context_size: int, counts: tuple[int, ...]) -> None:
    expected = reference("anchor", tied=False)
    cases = [(stage, context_size, count, "anchor", False, False) for stage in STAGES for count in counts]
    steps_by_rank = run_on(world_size, many_on_engine, cases)
    for case, step in zip(cases, steps_by_rank[0], strict=True):
        print(f"stage {case[0]}, micro-batches {case[2]}")
        check(step, expected)
    for steps in steps_by_rank[1:]:  # every rank logs the same loss and norm
        assert [(step.loss, step.norm) for step in steps] == [(step.loss, step.norm) for step in steps_by_rank[0]]


@pytest.mark.parametrize("arm", ["full", "document", "document_reset"])
def test_other_arms_with_tied_weights_and_checkpointing(arm: str) -> None:
    expected = reference(arm, tied=True)
    cases = [(stage, 2, 3, arm, True, True) for stage in (1, 3)]
    for step in run_on(2, many_on_engine, cases)[0]:
        check(step, expected)


def bf16_gradients_summed_in_float32() -> dict[str, Tensor]:
    """Of 12 micro-batches of a window, each micro-batch's bf16 gradient by plain autograd."""
    (batch,) = Batches(FakeWindows(), train_config(), alone()).steps(1, 1)
    wrapped = model(tied=False, precision="bf16")
    totals = {name: torch.zeros_like(parameter, dtype=torch.float32) for name, parameter in wrapped.named_parameters()}
    for micro in batch.micro_batches:
        loss = wrapped(micro.input_ids, micro.position_ids, micro.labels, micro.context)
        (loss * (12 / batch.valid_labels) / 12).backward()  # as the loop and DeepSpeed scale it
        for name, parameter in wrapped.named_parameters():
            totals[name] += parameter.grad.float()
            parameter.grad = None
    return totals


def test_bf16_micro_batches_are_summed_in_float32() -> None:
    """12 x 1 = 1 x 12, but for each micro-batch's own rounding; the sum itself rounds nothing to bf16."""
    expected = bf16_gradients_summed_in_float32()
    cases = [(stage, 1, count, "anchor", False, False, "bf16") for stage in (1, 2, 3) for count in (12, 1)]
    steps = run_on(1, many_on_engine, cases)[0]
    for many, one in zip(steps[::2], steps[1::2], strict=True):
        assert many.loss == pytest.approx(one.loss, rel=1e-6)
        assert many.norm == pytest.approx(one.norm, rel=1e-3)
        for name, gradient in many.gradients.items():
            error = (gradient - expected[name]).norm() / expected[name].norm()
            assert error < 1e-5, f"gradient of {name}: {error:.2g}"  # summed in bf16: 3e-3
            error = (gradient - one.gradients[name]).norm() / one.gradients[name].norm()
            assert error < 6e-3, f"gradient of {name} in one micro-batch: {error:.2g}"


def test_keeping_attention_changes_no_bit() -> None:
    cases = [(stage, 2, 2, "anchor", True, True, "float32", keep) for stage in (1, 2, 3) for keep in (False, True)]
    steps = run_on(2, many_on_engine, cases)[0]
    for recomputed, kept in zip(steps[::2], steps[1::2], strict=True):
        assert (kept.loss, kept.norm) == (recomputed.loss, recomputed.norm)
        for name, gradient in kept.gradients.items():
            assert torch.equal(gradient, recomputed.gradients[name]), name
