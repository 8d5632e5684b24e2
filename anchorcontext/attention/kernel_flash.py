"""Variable-length flash attention on GPUs, bottom-right causal, one call for all segments.

`flash` is flash-attn's where the package is installed, otherwise torch's own build of it. `flash3`
and `flash4` are FlashAttention 3 and 4 behind the same operators of torch, through torch's registry
(`torch.nn.attention.activate_flash_attention_impl`), which loads their packages.

Shapes: n rows of all segments, Hq query heads, Hkv key heads, D head size.
"""

from __future__ import annotations

import importlib.util
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from anchorcontext.attention.kernel import ForwardPass, Kernel
from anchorcontext.attention.partials import accumulation_dtype
from anchorcontext.attention.segments import Segments
from anchorcontext.attention.varlen import VarlenRows, rows_first, varlen_rows

_DTYPES = (torch.bfloat16, torch.float16)
_LARGEST_HEAD = 256
_LEAST_CAPABILITY = (8, 0)


class FlashKernel(Kernel):
    """Kernels `flash`, `flash3` and `flash4`: CUDA, BF16 or float16.

    Output and gradients are in the inputs' dtype, as the functions return them, except gradients of
    keys that several segments see: those are summed in float32. The logsumexp is float32.

    Args:
        implementation: its name in torch's registry; None for flash-attn, or torch's own.
    """

    def __init__(self, name: str, implementation: str | None = None) -> None:
        self.name = name
        self._implementation = implementation

    def refusal(self, device: torch.device) -> str | None:
        """See `Kernel.refusal`."""
        if device.type != "cuda":
            return "it needs a GPU"
        capability = torch.cuda.get_device_capability(device)
        if capability < _LEAST_CAPABILITY:
            return f"it needs a GPU of compute capability 8.0 or higher, not {capability[0]}.{capability[1]}"
        return None if self._implementation is None else _registry_refusal(self._implementation)

    def shape_refusal(self, device: torch.device, head_size: int, dtype: torch.dtype) -> str | None:
        """See `Kernel.shape_refusal`."""
        if dtype not in _DTYPES:
            return f"computes in bfloat16 and float16, not {str(dtype).removeprefix('torch.')}"
        if head_size % 8 or head_size > _LARGEST_HEAD:
            return f"takes head sizes that are multiples of 8 up to {_LARGEST_HEAD}, not {head_size}"
        return None

    def prepare(self, segments: Segments, device: torch.device) -> None:
        """See `Kernel.prepare`."""
        if len(segments):
            varlen_rows(segments, device)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See `Kernel.forward`."""
        _check(self.name, query)
        if not len(segments):
            lse = query.new_full(query.shape[:2], -torch.inf, dtype=accumulation_dtype(query.dtype))
            return query.new_zeros(query.shape), lse
        rows = varlen_rows(segments, query.device)
        out, lse = self._functions.forward(
            rows.queries(query), rows.keys(key), rows.keys(value), rows, segments.causal, scale
        )
        lse = rows_first(lse, len(out), query.shape[1])
        return rows.put_queries(out, len(query)), rows.put_queries(lse, len(query), -torch.inf)

    def backward(
        self, grad_out: Tensor, done: ForwardPass, segments: Segments, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Kernel.backward`."""
        query, key, value, out, lse = done
        if not len(segments):
            return query.new_zeros(query.shape), key.new_zeros(key.shape), value.new_zeros(value.shape)
        rows = varlen_rows(segments, query.device)
        taken = ForwardPass(
            rows.queries(query),
            rows.keys(key),
            rows.keys(value),
            rows.queries(out).contiguous(),
            rows.queries(lse).transpose(0, 1).contiguous(),
        )
        grads = self._functions.backward(rows.queries(grad_out).contiguous(), taken, rows, segments.causal, scale)
        return (
            rows.put_queries(grads[0], len(query)),
            rows.add_keys(grads[1], len(key)),
            rows.add_keys(grads[2], len(value)),
        )

    @cached_property
    def _functions(self) -> _Functions:
        if self._implementation is None and importlib.util.find_spec("flash_attn") is not None:
            return _FlashAttn()
        return _Torch(self._implementation)


class _Functions(Protocol):
    """One library's functions: rows of all segments concatenated, logsumexp as [Hq, n]."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, rows: VarlenRows, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]: ...

    def backward(
        self, grad_out: Tensor, done: ForwardPass, rows: VarlenRows, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]: ...


class _FlashAttn:
    """The package flash-attn, 2.8 or newer."""

    def __init__(self) -> None:
        from flash_attn import flash_attn_interface

        self._interface: Any = flash_attn_interface

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, rows: VarlenRows, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        out, lse, *_ = self._interface._flash_attn_varlen_forward(
            query,
            key,
            value,
            *rows.bounds,
            dropout_p=0.0,
            softmax_scale=scale,
            causal=causal,
        )
        return out, lse

    def backward(
        self, grad_out: Tensor, done: ForwardPass, rows: VarlenRows, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        grads = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in done[:3]]
        self._interface._flash_attn_varlen_backward(
            grad_out,
            *done,
            *grads,
            *rows.bounds,
            dropout_p=0.0,
            softmax_scale=scale,
            causal=causal,
            window_size_left=-1,
            window_size_right=-1,
            softcap=0.0,
            alibi_slopes=None,
            deterministic=torch.are_deterministic_algorithms_enabled(),
        )
        return grads[0], grads[1], grads[2]


class _Torch:
    """torch's operators, with whichever implementation its registry has activated."""

    def __init__(self, implementation: str | None) -> None:
        self._implementation = implementation

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, rows: VarlenRows, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        self._activate()
        out, lse, *_ = torch.ops.aten._flash_attention_forward(
            query,
            key,
            value,
            *rows.bounds,
            0.0,
            causal,
            return_debug_mask=False,
            scale=scale,
        )
        return out, lse

    def backward(
        self, grad_out: Tensor, done: ForwardPass, rows: VarlenRows, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        self._activate()
        no_dropout_state = torch.zeros(2, dtype=torch.uint64, device=grad_out.device)
        return torch.ops.aten._flash_attention_backward(
            grad_out,
            *done,
            *rows.bounds,
            0.0,
            causal,
            no_dropout_state,
            torch.empty(0, device=grad_out.device),
            scale=scale,
        )

    def _activate(self) -> None:
        """The registry's choice is global to the process: another kernel may have changed it."""
        attention: Any = torch.nn.attention
        if not hasattr(attention, "current_flash_attention_impl"):
            return  # a torch without the registry has only its own
        if attention.current_flash_attention_impl() == self._implementation:
            return
        if self._implementation is None:
            attention.restore_flash_attention_impl()
        else:
            attention.activate_flash_attention_impl(self._implementation)


def _registry_refusal(implementation: str) -> str | None:
    """Why torch cannot activate an implementation; activates it otherwise."""
    attention: Any = torch.nn.attention
    if implementation not in getattr(attention, "list_flash_attention_impls", list)():
        return f"torch {torch.__version__} has no {implementation} in its registry of flash attention"
    try:
        attention.activate_flash_attention_impl(implementation)
    except (ImportError, RuntimeError, AttributeError) as error:
        return f"torch cannot load {implementation} ({error}); is its package installed?"
    return None


def _check(name: str, query: Tensor) -> None:
    if query.dtype not in _DTYPES:
        raise ValueError(
            f"kernel={name!r} computes in bfloat16 and float16, not {query.dtype}: set the precision to bf16, or "
            "choose kernel='math' or 'flex'"
        )
    head_size = query.shape[2]
    if head_size % 8 or head_size > _LARGEST_HEAD:
        raise ValueError(
            f"kernel={name!r} takes head sizes that are multiples of 8 up to {_LARGEST_HEAD}, not {head_size}: choose "
            "kernel='flex' or 'math'"
        )
