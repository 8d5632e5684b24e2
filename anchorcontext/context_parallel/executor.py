"""Runs a plan's stages through a kernel, forward and backward.

One stage (`gather`) or several (`ring`), for all key heads at once or for groups of them in turn:
each pair of a head group and a stage is a step, and the next step's rows travel while the current one is
computed. Partial results of several stages are merged by logsumexp in the accumulation dtype and
rounded once. The backward repeats the exchange rather than keep the rows it received.

Shapes: Tl own rows, Hq query heads, Hkv key heads, D head size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch import Tensor

from anchorcontext.attention import ForwardPass, Kernel, accumulation_dtype, merge_partials
from anchorcontext.context_parallel.device_stage import DeviceStage
from anchorcontext.context_parallel.exchange import GradientReturn, KeyTransfer, connect

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_GPU_HEAD_GROUPS = 4
"""Default number of head groups where transfers and kernels really overlap."""

Item = TypeVar("Item")


class _Step(NamedTuple):
    """A stage for a group of heads."""

    stage: DeviceStage
    key_heads: slice
    query_heads: slice


@dataclass(frozen=True, eq=False)
class StagedAttention:
    """Attention by moving keys and values to the queries that see them.

    Attributes:
        stages: of this rank; the first one gives every own row its result.
        group: the ranks of the plan; None for one.
        head_groups: groups of key heads, computed one after the other. None: chosen by the device.
        point_to_point: whether any rank's stages have peers.
    """

    stages: Sequence[DeviceStage]
    group: ProcessGroup | None = None
    head_groups: int | None = None
    point_to_point: bool = False

    def forward(self, query: Tensor, key: Tensor, value: Tensor, kernel: Kernel, scale: float) -> tuple[Tensor, Tensor]:
        """Output [Tl, Hq, D] in the dtype of `query`, and logsumexp [Tl, Hq] in its accumulation dtype."""
        steps = self._steps(query, key)
        results: list[tuple[Tensor, Tensor]] = []
        for step, transfer in zip(steps, self._transfers(steps, key, value), strict=True):
            keys, values = transfer.wait()
            queries, rows = query[:, step.query_heads], step.stage.query_rows
            if rows is None:
                out, lse = kernel.forward(queries, keys, values, step.stage.segments, scale)
                if len(self.stages) > 1 and out.dtype == query.dtype:  # partial: merged with those of later stages
                    out = out.to(accumulation_dtype(query.dtype))
                results.append((out, lse))
            elif len(rows):
                out, lse = results[-1]
                partial = kernel.forward(queries.index_select(0, rows), keys, values, step.stage.segments, scale)
                merged = merge_partials(out.index_select(0, rows), lse.index_select(0, rows), *partial)
                results[-1] = (out.index_copy_(0, rows, merged[0]), lse.index_copy_(0, rows, merged[1]))
        out, lse = (_joined(list(parts)) for parts in zip(*results, strict=True))
        return out.to(query.dtype), lse.to(accumulation_dtype(query.dtype))

    def backward(
        self, grad_out: Tensor, done: ForwardPass, kernel: Kernel, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of query, key and value, in their shapes and dtypes."""
        query, key, value, out, lse = done
        wide = accumulation_dtype(query.dtype)
        if query.dtype != wide and self._is_local:
            grads = kernel.backward(grad_out, done, self.stages[0].segments, scale)
            return _rounded(grads[0], query.dtype), _rounded(grads[1], key.dtype), _rounded(grads[2], value.dtype)
        steps = self._steps(query, key)
        grad_query = query.new_zeros(query.shape, dtype=wide)
        total = key.new_zeros(len(key), 2, *key.shape[1:], dtype=wide)  # gradients of key and value
        returning: tuple[GradientReturn, Tensor] | None = None
        for step, transfer in zip(steps, self._transfers(steps, key, value), strict=True):
            keys, values = transfer.wait()
            rows = step.stage.query_rows
            grad_keys, grad_values = keys, values  # of no rows, where no query of this rank sees any
            if rows is None or len(rows):
                grad_rows, queries, outs, lses = (
                    _taken(tensor[:, step.query_heads], rows) for tensor in (grad_out, query, out, lse)
                )
                part = ForwardPass(queries, keys, values, outs, lses)
                grad, grad_keys, grad_values = kernel.backward(grad_rows, part, step.stage.segments, scale)
                _add_rows(grad_query[:, step.query_heads], rows, grad)
            sent = GradientReturn(grad_keys, grad_values, len(key), key.dtype, step.stage, self.group)
            if returning is not None:
                returning[0].add_to(returning[1])
            returning = (sent, total[:, :, step.key_heads])
        assert returning is not None
        returning[0].add_to(returning[1])
        return grad_query.to(query.dtype), total[:, 0].to(key.dtype), total[:, 1].to(value.dtype)

    @property
    def _is_local(self) -> bool:
        """Whether one call of the kernel over this rank's own rows is all: nothing is moved or summed."""
        stage = self.stages[0]
        return len(self.stages) == 1 and not stage.exchanges and stage.key_rows is None

    def _steps(self, query: Tensor, key: Tensor) -> list[_Step]:
        groups = self._number_of_groups(key)
        query_heads, key_heads = query.shape[1] // groups, key.shape[1] // groups
        return [
            _Step(
                stage,
                slice(number * key_heads, (number + 1) * key_heads),
                slice(number * query_heads, (number + 1) * query_heads),
            )
            for number in range(groups)
            for stage in self.stages
        ]

    def _number_of_groups(self, key: Tensor) -> int:
        """Groups of key heads; one where there is nothing to overlap."""
        key_heads = key.shape[1]
        if self.head_groups is not None and key_heads % self.head_groups:
            fits = [str(count) for count in range(1, key_heads + 1) if key_heads % count == 0]
            raise ValueError(
                f"head_groups={self.head_groups} does not divide the {key_heads} key heads: choose {', '.join(fits)}"
            )
        if not any(stage.exchanges for stage in self.stages):
            return 1
        if self.head_groups is not None:
            return self.head_groups
        overlapped = len(self.stages) > 1 or key.device.type == "cpu"
        return 1 if overlapped else math.gcd(_GPU_HEAD_GROUPS, key_heads)

    def _transfers(self, steps: Sequence[_Step], key: Tensor, value: Tensor) -> Iterator[KeyTransfer]:
        """The transfer of each step, with the next one already under way."""
        if self.group is not None and self.point_to_point:
            connect(self.group, key.device)
        return _one_ahead(
            KeyTransfer(key[:, step.key_heads], value[:, step.key_heads], step.stage, self.group) for step in steps
        )


def _one_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """The same items, each created before the previous one is yielded."""
    iterator = iter(items)
    current = next(iterator)
    for following in iterator:
        yield current
        current = following
    yield current


def _joined(parts: list[Tensor]) -> Tensor:
    """Head groups concatenated."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _rounded(grad: Tensor, dtype: torch.dtype) -> Tensor:
    """As it is where it has the dtype already, whatever its strides."""
    return grad if grad.dtype == dtype else grad.to(dtype, memory_format=torch.contiguous_format)


def _taken(tensor: Tensor, rows: Tensor | None) -> Tensor:
    return tensor if rows is None else tensor.index_select(0, rows)


def _add_rows(total: Tensor, rows: Tensor | None, values: Tensor) -> None:
    if rows is None:
        total += values
    else:
        total.index_copy_(0, rows, total.index_select(0, rows) + values.to(total.dtype))  # no two are equal
