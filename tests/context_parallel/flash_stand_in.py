"""ring-flash-attn on CPUs: the benchmarks' stand-in for the package `flash_attn`, for as long as a test needs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from anchorcontext.context_parallel import ring_flash_attn
from benchmarks import flash_attn_on_cpu


@contextmanager
def flash_attn_stand_in() -> Iterator[None]:
    """`import flash_attn` finds the stand-in, and device `cpu` is one of the package's."""
    with (
        mock.patch.dict(sys.modules, flash_attn_on_cpu.modules()),
        mock.patch.object(ring_flash_attn, "_DEVICES", ("cuda", "cpu")),
    ):
        yield
    ring_flash_attn.load_module.cache_clear()
