"""The real package ring-flash-attn behind the exchange, on a CPU: its flash-attn calls go to our CPU kernel."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest
import torch

from anchorcontext import WindowLayout, plan_context
from anchorcontext.context_parallel.ring_flash_attn import load_module
from tests.context_parallel.cases import dense_gradients, random_rows
from tests.context_parallel.flash_stand_in import flash_attn_stand_in
from tests.context_parallel.ranks import attend, bind, largest_error
from tests.workers import run_on

LAYOUTS = [
    WindowLayout([12]),
    WindowLayout([31, 53, 1, 23], num_rows=120),
    WindowLayout([7, 50], num_rows=72, arm="document"),
    WindowLayout.concatenate([WindowLayout([20, 3], num_rows=24), WindowLayout([12, 10], num_rows=36)]),
]


def errors(head_groups: int | None) -> list[float]:
    found = []
    with flash_attn_stand_in():
        for layout in LAYOUTS:
            rows = random_rows(layout.num_rows, 4, 2, 8)
            context = bind(layout, exchange="ring_flash_attn", head_groups=head_groups)
            found.append(largest_error(attend(rows, context), dense_gradients(rows, layout.dense_mask()), context))
    return found


@pytest.mark.parametrize("head_groups", [None, 1])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_package_is_attention_over_the_dense_mask(ranks: int, head_groups: int | None) -> None:
    for found in run_on(ranks, errors, head_groups):
        assert max(found) < 1e-12


def test_its_modules_load_without_its_adapters() -> None:
    with flash_attn_stand_in():
        module: Any = load_module("llama3_flash_attn_varlen")
    assert callable(module.llama3_flash_attn_varlen_func)
    assert not [name for name in sys.modules if name.startswith("ring_flash_attn.adapters")]


def test_what_it_cannot_do_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="a window that divides by its ranks, not 13 rows by 2"):
        plan_context(WindowLayout([13]), 2, exchange="ring_flash_attn")
    with pytest.raises(ValueError, match="not interleaved ones"):
        plan_context(WindowLayout([5, 5, 4], document_ids=[0, 1, 0]), 2, exchange="ring_flash_attn")
    with pytest.raises(ValueError, match="exchange='ring_flash_attn' needs policy='contiguous'"):
        plan_context(WindowLayout([14]), 2, exchange="ring_flash_attn", policy="zigzag")


def refusal_here() -> str:
    with pytest.raises(ValueError, match="needs a GPU, not device 'cpu'") as refusal:
        bind(WindowLayout([14]), exchange="ring_flash_attn").attention_on(torch.device("cpu"))
    return str(refusal.value)


def test_no_gpu() -> None:
    assert "choose exchange=gather or ring" in run_on(2, refusal_here)[0]


@pytest.mark.skipif(importlib.util.find_spec("flash_attn") is not None, reason="flash-attn is installed")
def test_a_missing_package_names_its_extra() -> None:
    load_module.cache_clear()
    with pytest.raises(ValueError, match=r"pip install 'anchorcontext\[gpu\]'"):
        load_module("llama3_flash_attn_varlen")
