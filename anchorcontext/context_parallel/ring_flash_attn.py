"""Exchange `ring_flash_attn`: the llama3 variable-length function of the package ring-flash-attn.

It gathers all keys and values, some heads at a time, and calls flash-attn on the part that a rank's
queries see. Only its functions are used, not its adapters for transformers, whose import fails
beside transformers 5.

Shapes: Tl own rows, Hq query heads, Hkv key heads, D head size.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from anchorcontext.attention import ForwardPass, Kernel, accumulation_dtype
from anchorcontext.context_parallel.plan import ContextPlan

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

PACKAGE = "ring_flash_attn"
_DEVICES = ("cuda",)


@cache
def load_module(name: str) -> Any:
    """A module of the package, without the package's own `__init__`.

    Raises:
        ValueError: the package, or flash-attn which it needs, is not installed.
    """
    found = importlib.util.find_spec(PACKAGE)
    if found is None or importlib.util.find_spec("flash_attn") is None:
        raise ValueError(
            "exchange='ring_flash_attn' needs the packages ring-flash-attn and flash-attn: pip install "
            "'anchorcontext[gpu]', or choose exchange=gather or ring"
        )
    if PACKAGE not in sys.modules:
        shell = ModuleType(PACKAGE)
        shell.__path__ = list(found.submodule_search_locations or [])
        shell.__spec__ = found
        sys.modules[PACKAGE] = shell
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
        return importlib.import_module(f"{PACKAGE}.{name}")


class PackageAttention:
    """Attention of a contiguous plan through the package.

    Raises:
        ValueError: no GPU, or no package.
    """

    def __init__(
        self, plan: ContextPlan, group: ProcessGroup, rank: int, device: torch.device, head_groups: int | None
    ) -> None:
        if device.type not in _DEVICES:
            raise ValueError(
                f"exchange='ring_flash_attn' runs flash-attn, which needs a GPU, not device {device.type!r}: choose "
                "exchange=gather or ring"
            )
        self._package = load_module("llama3_flash_attn_varlen")
        self._group = group
        self._head_groups = head_groups
        bounds = torch.from_numpy(plan.sequence_bounds).to(device, torch.int32)
        query_bounds, key_bounds, longest_query, longest_key, key_rows = (
            self._package.llama3_flash_attn_prepare_cu_seqlens(bounds, True, rank, plan.ranks)
        )
        self._sequences = (query_bounds, key_bounds, longest_query, longest_key)
        self._key_rows = key_rows
        self._padding = plan.padding_rows(rank).to(device)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, kernel: Kernel, scale: float) -> tuple[Tensor, Tensor]:
        """See `SharedAttention.forward`. The kernel is the package's."""
        out, lse = self._package.llama3_flash_attn_varlen_forward(
            self._group,
            query.contiguous(),
            key.contiguous(),
            value.contiguous(),
            *self._sequences,
            self._heads_at_a_time(key),
            self._key_rows,
            softmax_scale=scale,
        )
        lse = lse.T.to(accumulation_dtype(query.dtype))  # [Hq, Tl] -> [Tl, Hq]
        return out.masked_fill(self._padding[:, None, None], 0), lse.masked_fill(self._padding[:, None], -torch.inf)

    def backward(
        self, grad_out: Tensor, done: ForwardPass, kernel: Kernel, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `SharedAttention.backward`."""
        query, key, value, out, lse = done
        lse = lse.masked_fill(self._padding[:, None], torch.inf)  # padding's softmax weights: exp(score - inf) = 0
        return self._package.llama3_flash_attn_varlen_backward(
            self._group,
            grad_out.contiguous(),
            query.contiguous(),
            key.contiguous(),
            value.contiguous(),
            out.contiguous(),
            lse.T.contiguous(),
            *self._sequences,
            self._heads_at_a_time(key),
            self._key_rows,
            softmax_scale=scale,
            deterministic=torch.are_deterministic_algorithms_enabled(),
        )

    def _heads_at_a_time(self, key: Tensor) -> int:
        groups = key.shape[1] if self._head_groups is None else self._head_groups
        if key.shape[1] % groups:
            raise ValueError(f"head_groups={groups} does not divide the {key.shape[1]} key heads")
        return key.shape[1] // groups
