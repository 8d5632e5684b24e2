"""Attention results kept through activation checkpointing.

A checkpointed layer drops its activations and computes them again in the backward pass. Attention
is the most expensive part of that, and across ranks it repeats an exchange. With `keep_attention` as the
`context_fn` of `torch.utils.checkpoint.checkpoint(use_reentrant=False)` the outputs and logsumexps
of the forward pass are kept, per layer and micro-batch, and handed out again in its recomputation.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import Protocol

from torch import Tensor

Results = tuple[Tensor, Tensor]


class _Tape(Protocol):
    def take(self, compute: Callable[[], Results]) -> Results: ...


_tape: ContextVar[_Tape | None] = ContextVar("attention_tape", default=None)
"""Set only inside a checkpoint's forward or recomputation."""


def keep_attention() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Context managers of one checkpoint: for its forward pass, and for its recomputations."""
    results: list[Results] = []
    return _During(_Recorder(results)), _During(_Player(results))


def kept_or_computed(compute: Callable[[], Results]) -> Results:
    """What `compute` returns: from the forward pass where a recomputation asks, else computed."""
    tape = _tape.get()
    return compute() if tape is None else tape.take(compute)


class _Recorder:
    """Keeps what is computed."""

    def __init__(self, results: list[Results]) -> None:
        self._results = results

    def take(self, compute: Callable[[], Results]) -> Results:
        out, lse = compute()
        self._results.append((out.detach(), lse.detach()))  # the same memory, outside the graph
        return out, lse

    def rewind(self) -> None:
        self._results.clear()


class _Player:
    """Hands out what was kept, in the same order, as often as it is rewound."""

    def __init__(self, results: list[Results]) -> None:
        self._results = results
        self._next = 0

    def take(self, compute: Callable[[], Results]) -> Results:
        if self._next == len(self._results):
            raise RuntimeError(
                "the recomputation of a checkpoint calls attention more often than its forward pass did "
                f"({len(self._results)} times): what is checkpointed must do the same both times"
            )
        out, lse = self._results[self._next]
        self._next += 1
        return out.detach(), lse.detach()

    def rewind(self) -> None:
        self._next = 0


class _During(AbstractContextManager[None]):
    """A tape in use, rewound on entry; reentrant one after the other."""

    def __init__(self, tape: _Recorder | _Player) -> None:
        self._tape = tape
        self._token: Token[_Tape | None] | None = None

    def __enter__(self) -> None:
        self._tape.rewind()
        self._token = _tape.set(self._tape)

    def __exit__(self, *exception: object) -> None:
        assert self._token is not None
        _tape.reset(self._token)
