"""The flash kernels' own part on a CPU, around a stand-in for the GPU functions; the real ones where there is a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from anchorcontext import WindowLayout, plan_context
from anchorcontext.attention import KERNELS, ForwardPass, Segments, run_self_test, single_segment
from anchorcontext.attention import kernel_flash as flash_module
from anchorcontext.attention.kernel_flash import FlashKernel
from anchorcontext.attention.varlen import VarlenRows, key_layers, rows_first, varlen_rows
from anchorcontext.context_parallel.context import DeviceStage
from anchorcontext.context_parallel.executor import StagedAttention
from tests.attention.empty_results import EmptyResults
from tests.context_parallel.cases import random_rows

CPU = torch.device("cpu")


class StandIn:
    """What flash-attn promises of variable-length calls, from `math`: concatenated rows, logsumexp [heads, n]."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, rows: VarlenRows, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        out, lse = KERNELS["math"].forward(query, key, value, self._segments(query, key, rows, causal), scale)
        return out.to(query.dtype), lse.T.float()

    def backward(
        self, grad_out: Tensor, done: ForwardPass, rows: VarlenRows, causal: bool, scale: float
    ) -> tuple[Tensor, ...]:
        segments = self._segments(done.query, done.key, rows, causal)
        grads = KERNELS["math"].backward(grad_out, done._replace(lse=done.lse.T), segments, scale)
        return tuple(grad.to(done.query.dtype) for grad in grads)

    @staticmethod
    def _segments(query: Tensor, key: Tensor, rows: VarlenRows, causal: bool) -> Segments:
        queries, keys = rows.query_bounds.numpy().astype(np.int64), rows.key_bounds.numpy().astype(np.int64)
        assert (rows.query_bounds.dtype, rows.key_bounds.dtype) == (torch.int32, torch.int32)
        assert (queries[-1], keys[-1]) == (len(query), len(key))
        assert (np.diff(queries).max(), np.diff(keys).max()) == (rows.longest_queries, rows.longest_keys)
        return Segments(queries[:-1], np.diff(queries), keys[:-1], np.diff(keys), causal)


SEGMENTS = {
    "whole documents, concatenated": Segments(*map(np.array, ([0, 9], [9, 31], [0, 9], [9, 31]))),
    "two runs over one document's keys": Segments(*map(np.array, ([0, 9, 20], [9, 11, 5], [0, 9, 9], [9, 21, 5]))),
    "gaps, single rows, keys elsewhere": Segments(*map(np.array, ([2, 20, 33], [8, 5, 1], [30, 0, 12], [8, 29, 1]))),
    "not causal": Segments(*map(np.array, ([0, 20], [9, 5], [9, 9], [21, 5])), causal=False),
    "none": Segments(*(np.empty(0, dtype=np.int64) for _ in range(4))),
}


COUNTED = {
    "whole documents, concatenated": Segments(*map(np.array, ([0, 9], [9, 31], [0, 9], [9, 31]))),
    "padding at the end": Segments(*map(np.array, ([0, 9], [9, 16], [0, 9], [9, 26]))),
    "two runs over one document's keys": Segments(*map(np.array, ([0, 20], [20, 20], [0, 0], [20, 40]))),
}


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FlashKernel:
    made = FlashKernel("flash")
    made.__dict__["_functions"] = StandIn()
    return made


@pytest.mark.parametrize("name", SEGMENTS)
def test_rows_reach_the_functions_and_come_back(kernel: FlashKernel, name: str) -> None:
    query, key, value, grad = (tensor.bfloat16() for tensor in random_rows(40, 4, 2, 8))
    expected = KERNELS["math"].forward(query, key, value, SEGMENTS[name], 0.3)
    out, lse = kernel.forward(query, key, value, SEGMENTS[name], 0.3)
    torch.testing.assert_close(out.double(), expected[0], rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(lse.double(), expected[1], rtol=1e-5, atol=1e-5)
    assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
    done = ForwardPass(query, key, value, expected[0].bfloat16(), expected[1].float())
    saved = (grad, done, SEGMENTS[name], 0.3)
    for result, reference in zip(kernel.backward(*saved), KERNELS["math"].backward(*saved), strict=True):
        torch.testing.assert_close(result.double(), reference, rtol=2e-2, atol=2e-2)


def test_rows_that_lie_right_are_not_copied() -> None:
    rows = torch.arange(40.0)
    for name, copied in (("whole documents, concatenated", False), ("two runs over one document's keys", True)):
        packed = varlen_rows(SEGMENTS[name], CPU)
        assert packed is varlen_rows(SEGMENTS[name], CPU)
        assert packed.queries(rows).data_ptr() == rows.data_ptr()
        assert (packed.keys(rows).data_ptr() != rows.data_ptr()) is copied


class Allocations(TorchDispatchMode):
    """Counts the bytes that operators allocate: results that share no storage with an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {
            tensor.untyped_storage().data_ptr() for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)
        }
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in given:
                self.bytes += tensor.untyped_storage().nbytes()
        return result


# 40 rows of 4 query heads and 2 key heads of size 8 in bfloat16: bytes of a tensor of each shape
QUERY, KEY, LSE = 40 * 4 * 8 * 2, 40 * 2 * 8 * 2, 40 * 4 * 4


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        # what the functions return, and nothing else
        ("whole documents, concatenated", QUERY + LSE, QUERY + 2 * KEY),
        # 25 queries first, over 35 keys: what the functions return, once more in whole buffers; out and grad_out are
        # views, and the logsumexp of the first 25 rows is copied to be [heads, 25]
        (
            "padding at the end",
            (QUERY + LSE) * 25 // 40 + QUERY + LSE,
            LSE * 25 // 40 + QUERY * 25 // 40 + 2 * KEY * 35 // 40 + QUERY + 2 * KEY,
        ),
        # 40 queries over 60 keys, since 20 are seen twice: keys and values are gathered, and their gradients summed in
        # float32 (two layers of 40 and 20 rows: each layer is read from the sums in float32, and from the results)
        (
            "two runs over one document's keys",
            QUERY + LSE + 2 * KEY * 60 // 40,
            2 * KEY * 60 // 40 + QUERY + 2 * (KEY * 60 // 40 + 2 * KEY + (2 * KEY + KEY) * 60 // 40),
        ),
    ],
)
def test_bytes_allocated(kernel: FlashKernel, name: str, forward: int, backward: int) -> None:
    """Beside what the functions return, only buffers for rows they did not see, and repeated keys."""
    kernel.__dict__["_functions"] = EmptyResults()
    query, key, value, grad = (tensor.bfloat16() for tensor in random_rows(40, 4, 2, 8))
    segments = COUNTED[name]
    varlen_rows(segments, CPU)  # made once for all layers
    with Allocations() as allocated:
        out, lse = kernel.forward(query, key, value, segments, 0.3)
    assert allocated.bytes == forward
    with Allocations() as allocated:
        kernel.backward(grad, ForwardPass(query, key, value, out, lse), segments, 0.3)
    assert allocated.bytes == backward


def test_bytes_of_a_layer_on_one_rank(kernel: FlashKernel) -> None:
    """Attention of a planned window without an exchange allocates no more than the kernel; results are not copied."""
    kernel.__dict__["_functions"] = EmptyResults()
    attention = plan_context(WindowLayout([10, 30], arm="document"), 1).bind().attention_on(CPU)
    query, key, value, grad = (tensor.bfloat16() for tensor in random_rows(40, 4, 2, 8))
    attention.forward(query, key, value, kernel, 0.3)
    with Allocations() as allocated:
        out, lse = attention.forward(query, key, value, kernel, 0.3)
        attention.backward(grad, ForwardPass(query, key, value, out, lse), kernel, 0.3)
    assert allocated.bytes == QUERY + LSE + QUERY + 2 * KEY


def test_results_of_two_stages_are_merged_in_float32(kernel: FlashKernel) -> None:
    """The second half's queries over its own rows, then over the first half's."""
    halves = Segments(*map(np.array, ([0, 20], [20, 20], [0, 20], [20, 20])))
    earlier = Segments(*map(np.array, ([0], [20], [0], [20])), causal=False)
    stages = (DeviceStage.local(halves), replace(DeviceStage.local(earlier), query_rows=torch.arange(20, 40)))
    query, key, value, grad = (tensor.bfloat16() for tensor in random_rows(40, 4, 2, 8))
    attention = StagedAttention(stages)
    out, lse = attention.forward(query, key, value, kernel, 0.3)
    whole = single_segment(40, 40)
    expected = KERNELS["math"].forward(query, key, value, whole, 0.3)
    assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(out.double(), expected[0], rtol=1e-2, atol=1e-2)
    done = ForwardPass(query, key, value, out, lse)
    references = KERNELS["math"].backward(grad, done, whole, 0.3)
    for result, reference in zip(attention.backward(grad, done, kernel, 0.3), references, strict=True):
        assert result.dtype == torch.bfloat16
        torch.testing.assert_close(result.double(), reference, rtol=2e-2, atol=2e-2)


def test_key_layers_meet_no_row_twice() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        starts, lengths = rng.integers(0, 50, 12), rng.integers(1, 20, 12)
        layers = key_layers(starts, lengths)
        places = np.concatenate([places for places, _ in layers])
        assert sorted(places.tolist()) == list(range(lengths.sum()))
        gathered = np.concatenate([np.arange(s, s + n) for s, n in zip(starts, lengths, strict=True)])
        for places, rows in layers:
            assert len(set(rows.tolist())) == len(rows)
            assert np.array_equal(gathered[places], rows)
        most = max(np.bincount(gathered))
        assert len(layers) == most  # no fewer could do


def test_other_logsumexp_layouts_are_refused() -> None:
    assert rows_first(torch.zeros(4, 30), 30, 4).shape == (30, 4)
    for shape in ((2, 4, 20), (30, 4)):
        with pytest.raises(RuntimeError, match=r"not \[heads, rows\] = \(4, 30\)"):
            rows_first(torch.zeros(shape), 30, 4)


def test_what_the_functions_cannot_do_is_refused_by_name(kernel: FlashKernel) -> None:
    segments = SEGMENTS["two runs over one document's keys"]
    with pytest.raises(ValueError, match=r"not torch.float32: set the precision to bf16"):
        kernel.forward(*(tensor.float() for tensor in random_rows(40, 4, 2, 8)[:3]), segments, 1.0)
    with pytest.raises(ValueError, match="multiples of 8 up to 256, not 12"):
        kernel.forward(*(tensor.bfloat16() for tensor in random_rows(40, 4, 2, 12)[:3]), segments, 1.0)


def test_refusals_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    assert FlashKernel("flash").refusal(CPU) == "it needs a GPU"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert "compute capability 8.0 or higher, not 7.5" in str(FlashKernel("flash").refusal(cuda))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert FlashKernel("flash").refusal(cuda) is None
    assert "has no FA9 in its registry" in str(FlashKernel("flash9", "FA9").refusal(cuda))
    if not torch.cuda.is_available():
        assert "torch cannot load FA3" in str(FlashKernel("flash3", "FA3").refusal(cuda))


def test_calls_fit_torchs_operators() -> None:
    """The operators take what they are given: arguments are matched with the schemas of the installed torch."""
    schemas = {schema.name: schema for schema in torch._C._jit_get_all_schemas() if schema.overload_name == ""}
    forward = [argument.name for argument in schemas["aten::_flash_attention_forward"].arguments]
    backward = [argument.name for argument in schemas["aten::_flash_attention_backward"].arguments]
    assert forward[:10] == [
        *("query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal"),
        "return_debug_mask",
    ]
    assert backward[:14] == [
        *("grad_out", "query", "key", "value", "out", "logsumexp", "cum_seq_q", "cum_seq_k", "max_q", "max_k"),
        *("dropout_p", "is_causal", "rng_state", "unused"),
    ]
    assert "scale" in forward
    assert "scale" in backward
    assert "FA4" in torch.nn.attention.list_flash_attention_impls()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["flash", "flash3", "flash4", "flex"])
def test_on_a_gpu(name: str, dtype: torch.dtype) -> None:
    device = torch.device("cuda")
    if reason := KERNELS[name].refusal(device):
        pytest.skip(reason)
    run_self_test(name, device, dtype)
    for segments in SEGMENTS.values():
        query, key, value, grad = (tensor.to(device, dtype) for tensor in random_rows(40, 4, 2, 64))
        expected = KERNELS["math"].forward(query, key, value, segments, 0.1)
        for got, want in zip(KERNELS[name].forward(query, key, value, segments, 0.1), expected, strict=True):
            torch.testing.assert_close(got.double(), want, rtol=2e-2, atol=2e-2)
        done = ForwardPass(query, key, value, expected[0].to(dtype), expected[1].float())
        saved = (grad, done, segments, 0.1)
        for got, want in zip(KERNELS[name].backward(*saved), KERNELS["math"].backward(*saved), strict=True):
            torch.testing.assert_close(got.double(), want, rtol=5e-2, atol=5e-2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_torchs_own_build_on_a_gpu() -> None:
    """Also where flash-attn is installed."""
    kernel = FlashKernel("flash")
    kernel.__dict__["_functions"] = flash_module._Torch(None)
    segments = SEGMENTS["two runs over one document's keys"]
    query, key, value, _ = (tensor.to("cuda", torch.bfloat16) for tensor in random_rows(40, 4, 2, 64))
    for got, want in zip(
        kernel.forward(query, key, value, segments, 0.1),
        KERNELS["math"].forward(query, key, value, segments, 0.1),
        strict=True,
    ):
        torch.testing.assert_close(got.double(), want, rtol=2e-2, atol=2e-2)
