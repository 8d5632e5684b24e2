"""The methods compared: all our exchanges and policies, and other packages, each given rows in the order it requires.

Shapes: T rows of the window, Tl rows of a rank, Hq query heads, Hkv key heads, D head size.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from anchorcontext import CostModel, WindowLayout, packed_attention, plan_context
from anchorcontext.context_parallel import EXCHANGES, POLICIES
from anchorcontext.context_parallel.ring_flash_attn import load_module
from benchmarks import flash_attn_on_cpu

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Query [Tl, Hq, D], key and value [Tl, Hkv, D] -> [Tl, Hq, D]."""

ONE_RANK = "one rank"
PEERS = ("ring-flash-attn ring", "ring-flash-attn zigzag", "ring-flash-attn llama3", "DeepSpeed Ulysses")


@dataclass(frozen=True)
class Shape:
    """Heads of the attention layer."""

    query_heads: int
    key_heads: int
    head_dim: int


@dataclass(frozen=True)
class Method:
    """One way to share a window, on this rank.

    Attributes:
        names: several if several of our policies give the same plan.
        rows: window rows in the order in which this rank holds them, int64 [Tl], -1 for padding.
        whole: whether one rank computes everything.
        note: what a reader should know, such as padding.
    """

    names: tuple[str, ...]
    rows: Tensor
    attention: Attention
    whole: bool = False
    note: str = ""


def methods_of(
    lengths: Sequence[int], shape: Shape, device: torch.device, flops_per_second: float, bytes_per_second: float
) -> tuple[list[Method], dict[str, str]]:
    """All methods for concatenated documents of `lengths`, and why others cannot run; the same on every rank.

    Our plans assume these speeds of the kernel and the network.
    """
    groups = 1 if device.type == "cpu" else math.gcd(4, shape.key_heads)  # as `bind` computes them by default
    costs = CostModel(
        shape.query_heads,
        shape.key_heads,
        shape.head_dim,
        flops_per_second=flops_per_second,
        bytes_per_second=bytes_per_second,
        head_groups=groups,
    )
    layout = WindowLayout(lengths, arm="document")
    one_rank = plan_context(layout, 1).bind()
    methods = [Method((ONE_RANK,), one_rank.rows, partial(packed_attention, context=one_rank), whole=True)]
    ours, refused = _ours(layout, costs, device)
    methods += ours
    makers = (_ring, _zigzag, _llama3, _ulysses)
    for name, make in zip(PEERS, makers, strict=True):
        try:
            methods.append(replace(make(lengths, shape, device), names=(name,)))
        except (ImportError, ValueError) as error:
            refused[name] = str(error)
    return [replace(method, rows=method.rows.to(device)) for method in methods], refused


def _ours(layout: WindowLayout, costs: CostModel, device: torch.device) -> tuple[list[Method], dict[str, str]]:
    """Each plan once: `auto` gives the same plan as one of the other policies."""
    made: dict[str, Method] = {}  # by the plan's digest
    refused: dict[str, str] = {}
    for exchange, properties in EXCHANGES.items():
        for policy in ["contiguous"] if properties.contiguous_only else [*POLICIES, "auto"]:
            name = f"{exchange} {policy}"
            try:
                plan = plan_context(layout, dist.get_world_size(), exchange=exchange, policy=policy, costs=costs)
                context = plan.bind(dist.group.WORLD)
                context.attention_on(device)
            except ValueError as error:
                refused[name] = str(error)
                continue
            method = Method((name,), context.rows, partial(packed_attention, context=context))
            same = made.setdefault(plan.digest, method)
            if same is not method:
                made[plan.digest] = replace(same, names=(*same.names, name))
    return list(made.values()), refused


def _ring(lengths: Sequence[int], shape: Shape, device: torch.device) -> Method:
    """Every document in P equal parts, part r on rank r."""
    function = _package("ring_flash_attn_varlen").ring_flash_attn_varlen_func
    return _in_parts(function, lengths, device, parts=dist.get_world_size(), held=[dist.get_rank()])


def _zigzag(lengths: Sequence[int], shape: Shape, device: torch.device) -> Method:
    """Every document in 2P equal parts, parts r and 2P - 1 - r on rank r."""
    parts = 2 * dist.get_world_size()
    function = _package("zigzag_ring_flash_attn_varlen").zigzag_ring_flash_attn_varlen_func
    return _in_parts(function, lengths, device, parts=parts, held=[dist.get_rank(), parts - 1 - dist.get_rank()])


def _in_parts(
    function: Callable[..., Tensor], lengths: Sequence[int], device: torch.device, parts: int, held: list[int]
) -> Method:
    """A function of the package that needs document lengths divisible by `parts`: each is padded at its end."""
    rows: list[np.ndarray] = []
    offset = 0
    for length in lengths:
        padded = -(-length // parts) * parts
        document = np.where(np.arange(padded) < length, offset + np.arange(padded), -1)
        rows += [document.reshape(parts, -1)[part] for part in held]
        offset += length
    counts = [-(-length // parts) * len(held) for length in lengths]
    bounds = torch.tensor([0, *np.cumsum(counts).tolist()], dtype=torch.int32, device=device)
    padding = sum(-length % parts for length in lengths)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return function(query, key, value, bounds, max(counts), causal=True, group=dist.group.WORLD)

    note = f"documents padded to multiples of {parts}: {padding} rows"
    return Method((), torch.from_numpy(np.concatenate(rows)), attention, note=note)


def _llama3(lengths: Sequence[int], shape: Shape, device: torch.device) -> Method:
    """Contiguous rows; keys and values of all ranks are gathered, here all heads at once."""
    package = _package("llama3_flash_attn_varlen")
    rank, ranks, total = dist.get_rank(), dist.get_world_size(), sum(lengths)
    padding = -total % ranks
    whole = [*lengths, padding] if padding else list(lengths)
    bounds = torch.tensor([0, *np.cumsum(whole).tolist()], dtype=torch.int32, device=device)
    sequences = package.llama3_flash_attn_prepare_cu_seqlens(bounds, True, rank, ranks)
    here = np.arange(rank * (total + padding) // ranks, (rank + 1) * (total + padding) // ranks)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return package.llama3_flash_attn_varlen_func(
            query, key, value, *sequences[:4], shape.key_heads, sequences[4], causal=True, group=dist.group.WORLD
        )

    note = f"window padded to a multiple of {ranks}: {padding} rows" if padding else ""
    return Method((), torch.from_numpy(np.where(here < total, here, -1)), attention, note=note)


def _package(name: str) -> Any:
    """A module of ring-flash-attn; without a GPU it runs on the stand-in for flash-attn."""
    if importlib.util.find_spec("ring_flash_attn") is None:
        raise ImportError("ring-flash-attn is not installed: make venv, or pip install ring-flash-attn==0.1.8")
    if not torch.cuda.is_available():
        sys.modules.update(flash_attn_on_cpu.modules())
    return load_module(name)


def _ulysses(lengths: Sequence[int], shape: Shape, device: torch.device) -> Method:
    """DeepSpeed's DistributedAttention around our kernel on the whole window."""
    rank, ranks, total = dist.get_rank(), dist.get_world_size(), sum(lengths)
    repeats = next((n for n in range(1, shape.query_heads + 1) if shape.key_heads * n % ranks == 0), 0)
    if not repeats or shape.query_heads % (shape.key_heads * repeats):
        raise ValueError(f"heads {shape.query_heads}/{shape.key_heads} cannot be split among {ranks} ranks")
    if device.type == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed
    from deepspeed.sequence.layer import DistributedAttention

    deepspeed.init_distributed(dist_backend=dist.get_backend(), verbose=False)
    padding = -total % ranks
    context = plan_context(WindowLayout(lengths, arm="document", num_rows=total + padding), 1).bind()

    def local(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return packed_attention(query[0], key[0], value[0], context)[None]

    distributed = DistributedAttention(local, dist.group.WORLD, scatter_idx=2, gather_idx=1)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if repeats > 1:
            key, value = (rows.repeat_interleave(repeats, dim=1) for rows in (key, value))
        return distributed(query[None], key[None], value[None], 0)[0]

    here = np.arange(rank * (total + padding) // ranks, (rank + 1) * (total + padding) // ranks)
    notes = [f"key heads repeated {repeats} times"] if repeats > 1 else []
    notes += [f"window padded to a multiple of {ranks}: {padding} rows"] if padding else []
    return Method((), torch.from_numpy(np.where(here < total, here, -1)), attention, note="; ".join(notes))
