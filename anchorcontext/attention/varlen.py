"""Segments as variable-length kernels take them: concatenated rows and cumulative lengths.

Such kernels want the queries of all segments concatenated, and likewise their keys. Rows that already
lie that way are passed as views; otherwise they are gathered, and keys that several segments see are
repeated for each of them. Results are returned as the kernel made them where its rows are all rows;
otherwise one buffer is allocated for them.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from anchorcontext.attention.partials import accumulation_dtype
from anchorcontext.attention.segments import Segments
from anchorcontext.attention.transfer import to_device

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
            _key_layers=tuple((_on(device, places), _on(device, rows)) for places, rows in layers),
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

    def put_queries(self, rows: Tensor, num_rows: int, fill: float = 0.0) -> Tensor:
        """The inverse of `queries`: [num_rows, ...], `fill` in rows of no segment; `rows` itself if there are none."""
        return _placed(rows, self._query_rows, num_rows, fill)

    def add_keys(self, rows: Tensor, num_rows: int) -> Tensor:
        """The transpose of `keys`: [num_rows, ...], rows of equal keys summed, in the same order in every run.

        In the dtype of `rows`; in its accumulation dtype where there is anything to sum.
        """
        if len(self._key_layers) <= 1:  # no key is seen by two segments
            return _placed(rows, self._key_rows, num_rows, 0.0)
        whole = rows.new_zeros(num_rows, *rows.shape[1:], dtype=accumulation_dtype(rows.dtype))
        for places, targets in self._key_layers:
            added = whole.index_select(0, targets).add_(rows.index_select(0, places))
            whole.index_copy_(0, targets, added)
        return whole


_made: WeakKeyDictionary[Segments, dict[torch.device, VarlenRows]] = WeakKeyDictionary()


def varlen_rows(segments: Segments, device: torch.device) -> VarlenRows:
    """`VarlenRows.of`, once for all layers that share the segments."""
    by_device = _made.setdefault(segments, {})
    if device not in by_device:
        by_device[device] = VarlenRows.of(segments, device)
    return by_device[device]


def key_layers(starts: np.ndarray, lengths: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Key runs in the fewest layers whose runs do not overlap: each layer's (places among gathered keys, rows).

    A layer holds no row twice, so adding it needs no atomic sums, whose order differs between runs.
    """
    places = np.cumsum(lengths) - lengths
    busy: list[tuple[int, int]] = []  # (end, layer) of the last run of a layer
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


def _on(device: torch.device, values: np.ndarray) -> Tensor:
    return to_device(torch.from_numpy(values), device)


def _bounds(lengths: np.ndarray, device: torch.device) -> Tensor:
    return _on(device, np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))


def _rows(starts: np.ndarray, lengths: np.ndarray, device: torch.device) -> Rows:
    if np.array_equal(starts[1:], (starts + lengths)[:-1]):
        return slice(int(starts[0]), int(starts[-1] + lengths[-1]))
    return _on(device, _expanded(starts, lengths))


def _expanded(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """All rows of the runs, concatenated."""
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())


def _taken(tensor: Tensor, rows: Rows) -> Tensor:
    return tensor[rows] if isinstance(rows, slice) else tensor.index_select(0, rows)


def _placed(rows: Tensor, targets: Rows, num_rows: int, fill: float) -> Tensor:
    """[num_rows, ...] with `rows` at `targets`, which are distinct, and `fill` elsewhere."""
    if isinstance(targets, slice) and len(rows) == num_rows:
        return rows
    whole = rows.new_full((num_rows, *rows.shape[1:]), fill)
    if isinstance(targets, slice):
        whole[targets] = rows
        return whole
    return whole.index_copy_(0, targets, rows)
