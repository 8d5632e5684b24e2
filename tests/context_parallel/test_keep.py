"""Attention kept through recomputation: nothing is computed or exchanged twice, to the same bits."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import anchorcontext
from anchorcontext import WindowLayout, packed_attention
from anchorcontext.attention.kernel_cpu import CpuKernel
from anchorcontext.context_parallel import keep_attention, take_rows
from anchorcontext.models.build import checkpoint_layers
from tests.context_parallel.cases import random_rows
from tests.context_parallel.ranks import bind, on_ranks
from tests.models.tiny import tiny_model
from tests.workers import run_on

LAYOUTS = [WindowLayout([20, 31, 9]), WindowLayout([50, 3, 30], num_rows=90)]


class Counts:
    """Calls of exchanges and of the kernel's forward."""

    def __init__(self) -> None:
        self.exchanges = self.kernel_calls = 0

    def __enter__(self) -> Counts:
        exchange, forward = dist.all_to_all_single, CpuKernel.forward

        def counted_exchange(*args: Any, **kwargs: Any) -> Any:
            self.exchanges += 1
            return exchange(*args, **kwargs)

        def counted_forward(*args: Any) -> Any:
            self.kernel_calls += 1
            return forward(*args)

        self._patches = [
            mock.patch.object(dist, "all_to_all_single", counted_exchange),
            mock.patch.object(CpuKernel, "forward", counted_forward),
        ]
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        for patch in self._patches:
            patch.stop()


def two_in_flight(exchange: str, keep: bool) -> tuple[list[Tensor], int, int]:
    """Gradients of two micro-batches, recomputed in the other order; exchanges and kernel calls."""
    contexts = [bind(layout, exchange=exchange) for layout in LAYOUTS]
    options = {"context_fn": keep_attention} if keep else {}
    inputs: list[Tensor] = []
    losses = []
    with Counts() as counts:
        for seed, context in enumerate(contexts):
            tensors = [take_rows(rows, context.rows, 0) for rows in random_rows(LAYOUTS[seed].num_rows, 4, 2, 8, seed)]
            own = [tensor.requires_grad_() for tensor in tensors[:3]]

            def layer(query: Tensor, key: Tensor, value: Tensor, context: Any = context) -> Tensor:
                once = packed_attention(query * 1.5, key, value, context).tanh()
                return packed_attention(once, key, value.sin(), context).square()

            losses.append((checkpoint(layer, *own, use_reentrant=False, **options) * tensors[3]).sum())
            inputs += own
        for loss in reversed(losses):
            loss.backward()
    return [tensor.grad for tensor in inputs], counts.exchanges, counts.kernel_calls


@pytest.mark.parametrize("exchange", ["gather", "ring", "ulysses"])
def test_same_bits_without_a_second_exchange(exchange: str) -> None:
    run_on(2, two_in_flight, exchange, True)  # self-tests and connections are over
    kept, recomputed = run_on(2, two_in_flight, exchange, True), run_on(2, two_in_flight, exchange, False)
    forward_passes = 4  # two micro-batches of two attentions
    a_forward, a_backward = {
        "gather": (1, 2),
        "ring": (0, 0),  # point to point
        "ulysses": (5, 9),  # query, key, value, output, logsumexp; the same and the output's gradient, 3 gradients
    }[exchange]
    for (grads, exchanges, kernel_calls), (expected, all_exchanges, all_kernel_calls) in zip(
        kept, recomputed, strict=True
    ):
        assert all(torch.equal(a, b) for a, b in zip(grads, expected, strict=True))
        assert exchanges == forward_passes * (a_forward + a_backward)
        assert all_exchanges == forward_passes * (2 * a_forward + a_backward)
        assert 2 * kernel_calls == all_kernel_calls


def test_a_graph_can_be_gone_through_twice() -> None:
    context = bind(LAYOUTS[0])
    inputs = [tensor.requires_grad_() for tensor in random_rows(60, 4, 2, 8)[:3]]

    def attend(*rows: Tensor) -> Tensor:
        return packed_attention(*rows, context)

    out = checkpoint(attend, *inputs, use_reentrant=False, context_fn=keep_attention).sum()
    first = torch.autograd.grad(out, inputs, retain_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(first, torch.autograd.grad(out, inputs), strict=True))


def test_nothing_is_kept_outside_a_checkpoint() -> None:
    context = bind(LAYOUTS[0])
    rows = random_rows(60, 4, 2, 8)[:3]
    before = packed_attention(*rows, context)
    forward, recompute = keep_attention()
    with forward:
        packed_attention(*(2 * tensor for tensor in rows), context)
    assert torch.equal(packed_attention(*rows, context), before)
    with recompute:  # what was kept, whatever is asked
        assert not torch.equal(packed_attention(*rows, context), before)
        with pytest.raises(RuntimeError, match=r"more often than its forward pass did \(1 times\)"):
            packed_attention(*rows, context)


def model_gradients(checkpointing: bool, keep: bool) -> tuple[list[Tensor], int, list[int]]:
    """A tiny model on this world: gradients, exchanges, and rows of activations in each layer."""
    anchorcontext.register()
    model = tiny_model(attn="anchor").train()
    if checkpointing:
        checkpoint_layers(model, keep_attention=keep)
    lengths: list[int] = []
    for layer in model.model.layers:
        layer.register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].shape[1]))
    context = bind(LAYOUTS[1], "zigzag")
    ids = torch.arange(90) % 131
    with Counts() as counts:
        logits = model(
            input_ids=take_rows(ids, context.rows, 1)[None],
            position_ids=take_rows(LAYOUTS[1].position_ids, context.rows, 0)[None],
            attention_context=context,
            use_cache=False,
        ).logits
        logits.square().sum().backward()
    return [parameter.grad for parameter in model.parameters()], counts.exchanges, lengths


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_model_recomputes_everything_but_attention(ranks: int) -> None:
    plain, kept, recomputed = (
        on_ranks(ranks, model_gradients, *case) for case in ((False, False), (True, True), (True, False))
    )
    layers = 2
    for own_plain, own_kept, own_recomputed in zip(plain, kept, recomputed, strict=True):
        for grads in (own_kept[0], own_recomputed[0]):
            assert all(torch.equal(a, b) for a, b in zip(own_plain[0], grads, strict=True))
        if ranks > 1:
            assert own_plain[1] == own_kept[1] == 3 * layers
            assert own_recomputed[1] == 4 * layers
        assert set(own_plain[2]) == {90 // ranks}  # activations are really shared out
