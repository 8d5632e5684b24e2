"""A module `flash_attn` for CPUs: what ring-flash-attn's llama3 function calls of it, through our CPU kernel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
from torch import Tensor

from anchorcontext.attention import KERNELS, Segments


def _segments(cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, causal: bool) -> Segments:
    queries, keys = cu_seqlens_q.numpy().astype(np.int64), cu_seqlens_k.numpy().astype(np.int64)
    return Segments(queries[:-1], np.diff(queries), keys[:-1], np.diff(keys), causal)


def _flash_attn_varlen_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    return_softmax: bool = False,
    block_table: Tensor | None = None,
) -> tuple[Tensor, Tensor, Any, Any]:
    out, lse = KERNELS["cpu"].forward(q, k, v, _segments(cu_seqlens_q, cu_seqlens_k, causal), softmax_scale)
    return out.to(q.dtype), lse.T.contiguous(), None, None


def _flash_attn_varlen_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    deterministic: bool,
    rng_state: Tensor | None = None,
) -> None:
    segments = _segments(cu_seqlens_q, cu_seqlens_k, causal)
    grads = KERNELS["cpu"].backward(dout, q, k, v, out, softmax_lse.T, segments, softmax_scale)
    for given, grad in zip((dq, dk, dv), grads, strict=True):
        given.copy_(grad)


@contextmanager
def flash_attn_stand_in() -> Iterator[None]:
    """`import flash_attn` finds the stand-in, and device `cpu` is one of the package's."""
    from anchorcontext.context_parallel import ring_flash_attn

    package, interface = ModuleType("flash_attn"), ModuleType("flash_attn.flash_attn_interface")
    package.__spec__ = ModuleSpec("flash_attn", None, is_package=True)
    package.__path__ = []
    for function in (_flash_attn_varlen_forward, _flash_attn_varlen_backward):
        setattr(interface, function.__name__, function)
    package.flash_attn_interface = interface  # type: ignore[attr-defined]
    modules = {"flash_attn": package, "flash_attn.flash_attn_interface": interface}
    with mock.patch.dict(sys.modules, modules), mock.patch.object(ring_flash_attn, "_DEVICES", ("cuda", "cpu")):
        yield
    ring_flash_attn.load_module.cache_clear()
