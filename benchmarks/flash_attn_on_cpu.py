"""A stand-in for the package `flash_attn` on machines without a GPU.

It has the two private functions that ring-flash-attn's variable-length functions call, with
flash-attn 2.8's signatures, computed by the project's own CPU kernel, so that both sides of a
comparison run the same kernel.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
from torch import Tensor

from anchorcontext.attention import KERNELS, ForwardPass, Segments


def modules() -> dict[str, ModuleType]:
    """The stand-in's modules by name, for `sys.modules`.

    Add them only after transformers and DeepSpeed are imported, which would mistake them for the real package.
    """
    package, interface = ModuleType("flash_attn"), ModuleType("flash_attn.flash_attn_interface")
    package.__path__ = []
    package.flash_attn_interface = interface  # type: ignore[attr-defined]
    for module in (package, interface):
        module.__spec__ = ModuleSpec(module.__name__, None, is_package=module is package)
    for function in (_flash_attn_varlen_forward, _flash_attn_varlen_backward):
        setattr(interface, function.__name__, function)
    return {module.__name__: module for module in (package, interface)}


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
) -> tuple[Tensor, Tensor, None, None]:
    """Output [rows, H, D] in the dtype of `q`, and logsumexp [H, rows] in float32."""
    segments = _segments(tuple(cu_seqlens_q.tolist()), tuple(cu_seqlens_k.tolist()), causal)
    out, lse = KERNELS["cpu"].forward(q, k, v, segments, softmax_scale)
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
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
) -> None:
    """Write gradients into `dq`, `dk` and `dv`."""
    segments = _segments(tuple(cu_seqlens_q.tolist()), tuple(cu_seqlens_k.tolist()), causal)
    done = ForwardPass(q, k, v, out, softmax_lse.T)
    grads = KERNELS["cpu"].backward(dout, done, segments, softmax_scale)
    for target, grad in zip((dq, dk, dv), grads, strict=True):
        target.copy_(grad)


@lru_cache(maxsize=64)
def _segments(query_bounds: tuple[int, ...], key_bounds: tuple[int, ...], causal: bool) -> Segments:
    queries, keys = (np.array(bounds, dtype=np.int64) for bounds in (query_bounds, key_bounds))
    return Segments(queries[:-1], np.diff(queries), keys[:-1], np.diff(keys), causal=causal)
