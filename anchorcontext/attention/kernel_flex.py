"""FlexAttention with a block mask made from segments.

A query sees one run of keys, so a mask is two numbers per row: the first key and the one past the last.
Blocks of 128 x 128 in which no query sees a key are skipped, and blocks in which every query sees every
key are computed without a mask.

The backward goes through FlexAttention's own autograd over a second forward pass, since its backward
cannot be called by itself: with o, l this part's output and logsumexp and O, L the final ones, the
part enters as O = .. + exp(l - L) * o, so that do = exp(l - L) * dO and dl = exp(l - L) * (dO . (o - O)).

Shapes: rows first, [rows, H, D], outside; [1, H, rows, D] inside.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from anchorcontext.attention.kernel import ForwardPass, Kernel
from anchorcontext.attention.partials import accumulation_dtype
from anchorcontext.attention.segments import Segments

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

_BLOCK = 128
_BACKWARD_DEVICES = ("cuda",)
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_SMALLEST_HEAD = 16


class FlexKernel(Kernel):
    """Kernel `flex`: CUDA; on a CPU the forward only, with all scores in memory, for small windows."""

    name = "flex"

    def refusal(self, device: torch.device) -> str | None:
        """See `Kernel.refusal`."""
        return None if device.type in ("cuda", "cpu") else "FlexAttention runs on CUDA and CPU"

    def shape_refusal(self, device: torch.device, head_size: int, dtype: torch.dtype) -> str | None:
        """See `Kernel.shape_refusal`. The limits are those of the Triton code that it compiles to."""
        if device.type != "cuda":
            return None
        if dtype not in _DTYPES:
            return f"computes in bfloat16, float16 and float32, not {str(dtype).removeprefix('torch.')}"
        if head_size < _SMALLEST_HEAD:
            return f"takes head sizes from {_SMALLEST_HEAD}, not {head_size}"
        return None

    def has_backward(self, device: torch.device) -> bool:
        """See `Kernel.has_backward`."""
        return device.type in _BACKWARD_DEVICES

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See `Kernel.forward`."""
        wide = accumulation_dtype(query.dtype)
        if not len(segments):
            return query.new_zeros(query.shape, dtype=wide), query.new_full(query.shape[:2], -torch.inf, dtype=wide)
        with torch.no_grad():
            out, lse = _attend(query, key, value, segments, scale)
        return out.to(wide).masked_fill((lse == -torch.inf)[..., None], 0.0), lse.to(wide)

    def backward(
        self, grad_out: Tensor, done: ForwardPass, segments: Segments, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Kernel.backward`."""
        query, key, value, out, lse = done
        if not self.has_backward(query.device):
            raise ValueError(
                f"kernel='flex' has no backward on device {query.device.type!r}: choose kernel='auto' to train there"
            )
        wide = accumulation_dtype(query.dtype)
        if not len(segments):
            query, key, value = (tensor.new_zeros(tensor.shape, dtype=wide) for tensor in (query, key, value))
            return query, key, value
        inputs = [tensor.detach().requires_grad_() for tensor in (query, key, value)]
        with torch.enable_grad():
            part_out, part_lse = _attend(inputs[0], inputs[1], inputs[2], segments, scale)
            seeing = part_lse.detach() > -torch.inf
            share = torch.where(seeing, torch.exp(part_lse.detach() - lse), 0.0).to(wide)
            grad_part = share[..., None] * grad_out
            grad_lse = (grad_part * (part_out.detach().to(wide) - out)).sum(dim=-1)
            grads = torch.autograd.grad(
                (part_out, part_lse), inputs, (grad_part.to(part_out.dtype), grad_lse.to(part_lse.dtype))
            )
        return grads[0], grads[1], grads[2]


@dataclass(frozen=True, eq=False)
class KeyBlocks:
    """Which keys each query and each block of queries sees.

    Attributes:
        first, last: first key of each query and the one past its last, int32 [queries]; equal where
            it sees none.
        partial, full: blocks of keys by block of queries, bool [query blocks, key blocks]: seen by
            some queries in part, and seen whole by all.
    """

    first: np.ndarray
    last: np.ndarray
    partial: np.ndarray
    full: np.ndarray

    @classmethod
    def of(cls, segments: Segments, num_queries: int, num_keys: int, block: int = _BLOCK) -> KeyBlocks:
        first, last = key_ranges(segments, num_queries)
        sees = last > first
        query_blocks, key_blocks = -(-num_queries // block), -(-num_keys // block)

        def by_block(values: np.ndarray, padding: int) -> np.ndarray:
            return np.pad(values, (0, query_blocks * block - num_queries), constant_values=padding).reshape(-1, block)

        beginnings, ends = np.arange(key_blocks) * block, (np.arange(key_blocks) + 1) * block
        lowest = by_block(np.where(sees, first, num_keys), num_keys).min(axis=1)[:, None]
        highest = by_block(np.where(sees, last, 0), 0).max(axis=1)[:, None]
        seen = (beginnings < highest) & (ends > lowest)
        latest_first = by_block(first, 0).max(axis=1)[:, None]
        earliest_last = by_block(last, num_keys).min(axis=1)[:, None]
        full = (beginnings >= latest_first) & (ends <= earliest_last)
        return cls(first, last, seen & ~full, full)


def key_ranges(segments: Segments, num_queries: int) -> tuple[np.ndarray, np.ndarray]:
    """First key of each query and the one past its last, int32 [queries]; 0 and 0 for one that sees none."""
    first, last = np.zeros(num_queries, dtype=np.int32), np.zeros(num_queries, dtype=np.int32)
    lengths = segments.query_lengths
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows = np.repeat(segments.query_starts, lengths) + within
    ends = np.repeat(segments.key_starts + segments.key_lengths, lengths)
    first[rows] = np.repeat(segments.key_starts, lengths)
    last[rows] = ends - np.repeat(lengths, lengths) + within + 1 if segments.causal else ends
    return first, last


_made: WeakKeyDictionary[Segments, dict[tuple[torch.device, int, int], BlockMask]] = WeakKeyDictionary()


def block_mask(segments: Segments, num_queries: int, num_keys: int, device: torch.device) -> BlockMask:
    """The block mask of segments, made once for all layers that share them."""
    masks = _made.setdefault(segments, {})
    place = (device, num_queries, num_keys)
    if place not in masks:
        masks[place] = _make_mask(KeyBlocks.of(segments, num_queries, num_keys), num_queries, num_keys, device)
    return masks[place]


def _make_mask(blocks: KeyBlocks, num_queries: int, num_keys: int, device: torch.device) -> BlockMask:
    from torch.nn.attention.flex_attention import BlockMask

    first, last = (torch.from_numpy(rows).to(device) for rows in (blocks.first, blocks.last))

    def sees(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key >= first[query]) & (key < last[query])

    return BlockMask.from_kv_blocks(
        *_listed(blocks.partial, device),
        *_listed(blocks.full, device),
        BLOCK_SIZE=_BLOCK,
        mask_mod=sees,
        seq_lengths=(num_queries, num_keys),
    )


def _listed(chosen: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
    """Counts [1, 1, query blocks] and numbers [1, 1, query blocks, key blocks] of chosen blocks, int32."""
    numbers = np.argsort(~chosen, axis=1, kind="stable").astype(np.int32)
    counts = chosen.sum(axis=1, dtype=np.int32)
    return torch.from_numpy(counts)[None, None].to(device), torch.from_numpy(numbers)[None, None].to(device)


def _attend(query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float) -> tuple[Tensor, Tensor]:
    """Output [rows, H, D] and logsumexp [rows, H]."""
    mask = block_mask(segments, len(query), len(key), query.device)
    query, key, value = (tensor.transpose(0, 1)[None] for tensor in (query, key, value))
    out, lse = _flex(query, key, value, mask, scale)
    return out[0].transpose(0, 1), lse[0].transpose(0, 1)


def _flex(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float) -> tuple[Tensor, Tensor]:
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention

    options: dict[str, Any] = {
        "block_mask": mask,
        "scale": scale,
        "enable_gqa": True,
        "return_aux": AuxRequest(lse=True),
    }
    if query.device.type == "cuda":
        out, aux = _compiled()(query, key, value, **options)
        return out, aux.lse
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        out, aux = flex_attention(query, key, value, **options)
    return out, aux.lse


@cache
def _compiled() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)
