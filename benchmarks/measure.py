"""Measure one forward and backward pass on one rank: time, bytes sent, peak memory, error."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from anchorcontext import WindowLayout, packed_attention, plan_context
from anchorcontext.context_parallel import take_rows
from benchmarks.methods import Method, Shape

_MIB = 2**20


def inputs(num_rows: int, shape: Shape, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Query, key, value and output gradient of the whole window; the same on every rank."""
    generator = torch.Generator().manual_seed(0)
    heads = (shape.query_heads, shape.key_heads, shape.key_heads, shape.query_heads)
    return [
        torch.randn(num_rows, count, shape.head_dim, generator=generator).to(device=device, dtype=dtype)
        for count in heads
    ]


def measure(method: Method, window: Sequence[Tensor]) -> dict[str, float]:
    """One pass of this rank.

    Returns:
        `seconds`: on a CPU the CPU seconds of the process, communication threads included; on a GPU the
        time between start and end; `thread_seconds`: of the computing thread alone (0 on a GPU);
        `mib_sent`; `peak_mib`: peak memory above what was held before.
    """
    query, key, value, grad_out = _own_rows(method, window)
    if not method.whole:
        dist.barrier()
    memory = _peak_memory(query.device)
    with _bytes_sent() as sent:
        stop = _clock(query.device)
        method.attention(query, key, value).backward(grad_out)
        seconds, thread_seconds = stop()
    return {
        "seconds": seconds,
        "thread_seconds": thread_seconds,
        "mib_sent": sum(sent) / _MIB,
        "peak_mib": memory(),
    }


def error(method: Method, window: Sequence[Tensor], reference: Sequence[Tensor]) -> float:
    """The largest difference of output and gradients from `reference` on this rank's rows, relative to the largest
    value of each.
    """
    query, key, value, grad_out = _own_rows(method, window)
    out = method.attention(query, key, value)
    out.backward(grad_out)
    used = method.rows >= 0
    worst = 0.0
    for result, expected in zip((out, query.grad, key.grad, value.grad), reference, strict=True):
        assert result is not None
        own = take_rows(expected, method.rows, 0)
        difference = (result.detach().double() - own)[used.to(own.device)].abs().max().item()
        worst = max(worst, difference / expected.abs().max().item())
    return worst


def exact(lengths: Sequence[int], window: Sequence[Tensor]) -> list[Tensor]:
    """Output and gradients of query, key and value, by the definition, in float64."""
    context = plan_context(WindowLayout(lengths, arm="document"), 1).bind(kernel="math")
    query, key, value = (rows.double().requires_grad_() for rows in window[:3])
    out = packed_attention(query, key, value, context)
    return [out.detach(), *torch.autograd.grad(out, (query, key, value), window[3].double())]


def _own_rows(method: Method, window: Sequence[Tensor]) -> list[Tensor]:
    own = [take_rows(rows, method.rows, 0).contiguous() for rows in window]
    return [*(rows.requires_grad_() for rows in own[:3]), own[3]]


def _clock(device: torch.device) -> Callable[[], tuple[float, float]]:
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()

        def stop_gpu() -> tuple[float, float]:
            end.record()
            torch.cuda.synchronize(device)
            return start.elapsed_time(end) / 1000, 0.0

        return stop_gpu
    process, thread = time.process_time(), time.thread_time()
    return lambda: (time.process_time() - process, time.thread_time() - thread)


def _peak_memory(device: torch.device) -> Callable[[], float]:
    """Start measuring; the function returned stops and gives MiB."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        return lambda: (torch.cuda.max_memory_allocated(device) - held) / _MIB
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # memory freed by earlier methods must not be reused uncounted
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        held = _status_kib("VmRSS")
    except OSError:
        return lambda: float("nan")
    return lambda: (_status_kib("VmHWM") - held) / 1024


def _status_kib(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1])


@contextmanager
def _bytes_sent() -> Iterator[list[float]]:
    """Bytes that this rank sends to others, one entry per torch.distributed operation."""
    sent: list[float] = []
    ranks = dist.get_world_size()

    def all_to_all(output: Tensor, input: Tensor, *splits: Any, **options: Any) -> float:
        counts = splits[1] if len(splits) > 1 else options.get("input_split_sizes")
        own = len(input) / ranks if counts is None else counts[dist.get_rank()]
        return input.nbytes * (1 - own / max(len(input), 1)) if len(input) else 0

    sizes: dict[str, Callable[..., float]] = {
        "all_to_all_single": all_to_all,
        "all_gather_into_tensor": lambda output, input, **_: input.nbytes * (ranks - 1),
        "reduce_scatter_tensor": lambda output, input, **_: input.nbytes * (ranks - 1) / ranks,
        "batch_isend_irecv": lambda operations: sum(o.tensor.nbytes for o in operations if o.op is dist.isend),
    }
    originals = {name: getattr(dist, name) for name in sizes}

    def counting(name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            sent.append(sizes[name](*args, **options))
            return originals[name](*args, **options)

        return call

    for name in originals:
        setattr(dist, name, counting(name))
    try:
        yield sent
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)
