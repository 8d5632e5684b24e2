"""Segments as variable-length kernels take them: rows behind one another, and cumulative lengths.

Such kernels want the queries of all segments behind one another, and likewise their keys. Where they
already lie so they are taken as they are; otherwise they are gathered, keys that several segments see
once for each.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from anchorcontext.attention.segments import Segments

Rows = slice | Tensor


@dataclass(frozen=True, eq=False)
class VarlenRows:
    """Segments on a device.

    Attributes:
        query_bounds, key_bounds: cumulative lengths, int32 [segments + 1].
        longest_queries, longest_keys: of one segment.
    """

    query_bounds: Tensor
    key_bounds: Tensor
    longest_queries: int
    longest_keys: int
    _query_rows: Rows
    _key_rows: Rows
    _key_layers: tuple[tuple[Tensor, Tensor], ...]

    @classmethod
    def of(cls, segments: Segments, device: torch.device) -> VarlenRows:
        key_rows = _rows(segments.key_starts, segments.key_lengths, device)
        layers = [] if isinstance(key_rows, slice) else key_layers(segments.key_starts, segments.key_lengths)
        return cls(
            query_bounds=_bounds(segments.query_lengths, device),
            key_bounds=_bounds(segments.key_lengths, device),
            longest_queries=int(segments.query_lengths.max()),
            longest_keys=int(segments.key_lengths.max()),
            _query_rows=_rows(segments.query_starts, segments.query_lengths, device),
            _key_rows=key_rows,
            _key_layers=tuple(
                (torch.from_numpy(places).to(device), torch.from_numpy(rows).to(device)) for places, rows in layers
            ),
        )

    @property
    def bounds(self) -> tuple[Tensor, Tensor, int, int]:
        """As variable-length kernels take them."""
        return self.query_bounds, self.key_bounds, self.longest_queries, self.longest_keys

    def queries(self, tensor: Tensor) -> Tensor:
        """The queries of all segments, [rows, ...]."""
        return _taken(tensor, self._query_rows)

    def keys(self, tensor: Tensor) -> Tensor:
        """The keys of all segments, [rows, ...]."""
        return _taken(tensor, self._key_rows)

    def put_queries(self, rows: Tensor, whole: Tensor) -> Tensor:
        """`whole` with the segments' rows replaced: the inverse of `queries`."""
        if isinstance(self._query_rows, slice):
            whole[self._query_rows] = rows
            return whole
        return whole.index_copy_(0, self._query_rows, rows.to(whole.dtype))

    def add_keys(self, rows: Tensor, whole: Tensor) -> Tensor:
        """`whole` with the segments' key rows added: the transpose of `keys`, in the same order in every run."""
        if isinstance(self._key_rows, slice):
            whole[self._key_rows] += rows
            return whole
        for places, targets in self._key_layers:
            added = whole.index_select(0, targets) + rows.index_select(0, places)
            whole.index_copy_(0, targets, added.to(whole.dtype))
        return whole


_made: WeakKeyDictionary[Segments, dict[torch.device, VarlenRows]] = WeakKeyDictionary()


def varlen_rows(segments: Segments, device: torch.device) -> VarlenRows:
    """`VarlenRows.of`, once for all layers that share the segments."""
    by_device = _made.setdefault(segments, {})
    if device not in by_device:
        by_device[device] = VarlenRows.of(segments, device)
    return by_device[device]


def key_layers(starts: np.ndarray, lengths: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Key runs in as few layers as keep runs of a layer apart: each layer's (places among gathered keys, rows).

    Adding a layer meets no row twice, so it needs no atomic sums, whose order differs between runs.
    """
    places = np.cumsum(lengths) - lengths
    busy: list[tuple[int, int]] = []  # (end, layer) of the run that a layer holds last
    layers: list[list[int]] = []
    for run in np.argsort(starts, kind="stable").tolist():
        if busy and busy[0][0] <= starts[run]:
            _, layer = heapq.heappop(busy)
        else:
            layer = len(layers)
            layers.append([])
        layers[layer].append(run)
        heapq.heappush(busy, (int(starts[run] + lengths[run]), layer))
    return [
        (_expanded(places[runs], lengths[runs]), _expanded(starts[runs], lengths[runs]))
        for runs in map(np.array, layers)
    ]


def rows_first(lse: Tensor, num_rows: int, num_heads: int) -> Tensor:
    """A kernel's logsumexp [heads, rows] as [rows, heads].

    Raises:
        RuntimeError: another layout, such as the [segments, heads, longest] of flash-attn before 2.6.
    """
    if lse.shape != (num_heads, num_rows):
        raise RuntimeError(
            f"the kernel's logsumexp has shape {tuple(lse.shape)}, not [heads, rows] = {(num_heads, num_rows)}: its "
            "version is not supported (flash-attn needs 2.8 or newer)"
        )
    return lse.transpose(0, 1)


def _bounds(lengths: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(np.concatenate(([0], np.cumsum(lengths)))).to(device, torch.int32)


def _rows(starts: np.ndarray, lengths: np.ndarray, device: torch.device) -> Rows:
    if np.array_equal(starts[1:], (starts + lengths)[:-1]):
        return slice(int(starts[0]), int(starts[-1] + lengths[-1]))
    return torch.from_numpy(_expanded(starts, lengths)).to(device)


def _expanded(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """All rows of runs behind one another."""
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())


def _taken(tensor: Tensor, rows: Rows) -> Tensor:
    return tensor[rows] if isinstance(rows, slice) else tensor.index_select(0, rows)
