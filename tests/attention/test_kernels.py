import numpy as np
import pytest
import torch

from anchorcontext.attention import KERNELS, ForwardPass, Segments, choose_kernel, merge_partials
from tests.context_parallel.cases import dense_gradients, random_rows

HEADS = [(4, 2), (3, 1), (5, 5)]
TRAINING = ["math", "cpu"]
"""Kernels that run forward and backward on a CPU."""


def segments_and_mask(causal: bool) -> tuple[Segments, torch.Tensor]:
    """Whole documents, last rows of one, two runs over one document's keys, single rows, gaps."""
    segments = Segments(
        query_starts=np.array([0, 9, 20, 33, 34]),
        query_lengths=np.array([9, 11, 5, 1, 1]),
        key_starts=np.array([0, 9, 9, 30, 39]),
        key_lengths=np.array([9, 21, 5, 9, 1]),
        causal=causal,
    )
    mask = torch.zeros(40, 40, dtype=torch.bool)
    for rows, keys in segments.runs:
        count, earlier = rows.stop - rows.start, keys.stop - keys.start - (rows.stop - rows.start)
        visible = torch.ones(count, keys.stop - keys.start, dtype=torch.bool)
        mask[rows, keys] = visible.tril(earlier) if causal else visible
    return segments, mask


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("heads", "key_heads"), HEADS)
@pytest.mark.parametrize("name", TRAINING)
def test_forward_and_backward_equal_the_definition(name: str, heads: int, key_heads: int, causal: bool) -> None:
    segments, mask = segments_and_mask(causal)
    rows = random_rows(40, heads, key_heads, 8)
    expected = dense_gradients(rows, mask)
    out, lse = KERNELS[name].forward(*rows[:3], segments, 8**-0.5)
    grads = KERNELS[name].backward(rows[3], ForwardPass(*rows[:3], out, lse), segments, 8**-0.5)
    for result, reference in zip((out, lse, *grads), expected, strict=True):
        torch.testing.assert_close(result, reference, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", TRAINING)
def test_contract_of_layouts_and_dtypes(name: str) -> None:
    """Logsumexp layouts differ between kernel versions: [rows, heads], natural, -inf without keys, wide enough."""
    segments, mask = segments_and_mask(True)
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        query, key, value, grad = (tensor.to(dtype) for tensor in random_rows(40, 4, 2, 8))
        out, lse = KERNELS[name].forward(query, key, value, segments, 0.5)
        assert out.shape == (40, 4, 8)
        assert lse.shape == (40, 4)
        unseen = ~mask.any(dim=1)
        assert bool((lse[unseen] == -torch.inf).all())
        assert bool((out[unseen] == 0).all())
        grads = KERNELS[name].backward(grad, ForwardPass(query, key, value, out, lse), segments, 0.5)
        assert [tuple(tensor.shape) for tensor in grads] == [(40, 4, 8), (40, 2, 8), (40, 2, 8)]
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        for tensor in (out, lse, *grads):
            assert torch.promote_types(tensor.dtype, wide) == tensor.dtype


STRIDES = {
    "heads first in memory": lambda rows: rows.transpose(0, 1).contiguous().transpose(0, 1),
    "every second number": lambda rows: torch.stack((rows, -rows), dim=-1).flatten(-2)[..., ::2],
    "reversed axes": lambda rows: rows.permute(2, 1, 0).contiguous().permute(2, 1, 0),
}


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("name", TRAINING)
def test_any_strides(name: str, stride: str) -> None:
    segments, _ = segments_and_mask(True)
    rows = random_rows(40, 4, 2, 8)
    results = []
    for query, key, value, grad in (rows, [STRIDES[stride](tensor) for tensor in rows]):
        out, lse = KERNELS[name].forward(query, key, value, segments, 1.0)
        done = ForwardPass(query, key, value, out, lse)
        results.append((out, lse, *KERNELS[name].backward(grad, done, segments, 1.0)))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", TRAINING)
def test_gradient_without_strides(name: str) -> None:
    """What a plain sum hands back: one number, expanded."""
    segments, mask = segments_and_mask(True)
    query, key, value, _ = random_rows(40, 4, 2, 8)
    ones = torch.ones((), dtype=torch.float64).expand(40, 4, 8)
    out, lse = KERNELS[name].forward(query, key, value, segments, 8**-0.5)
    grads = KERNELS[name].backward(ones, ForwardPass(query, key, value, out, lse), segments, 8**-0.5)
    for got, want in zip(grads, dense_gradients([query, key, value, ones], mask)[2:], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", TRAINING)
def test_two_threads_give_the_same_bits(name: str) -> None:
    segments, _ = segments_and_mask(True)
    query, key, value, grad = (tensor.float() for tensor in random_rows(40, 4, 2, 8))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        results = []
        for _ in range(5):
            out, lse = KERNELS[name].forward(query, key, value, segments, 0.3)
            done = ForwardPass(query, key, value, out, lse)
            results.append((out, lse, *KERNELS[name].backward(grad, done, segments, 0.3)))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_merge_of_disjoint_keys_is_attention_over_both() -> None:
    query, key, value, _ = random_rows(10, 2, 2, 4)
    segments = [
        Segments(np.array([0]), np.array([10]), np.array([a]), np.array([n]), False) for a, n in ((0, 3), (3, 7))
    ]
    whole = Segments(np.array([0]), np.array([10]), np.array([0]), np.array([10]), False)
    parts = [KERNELS["math"].forward(query, key, value, part, 1.0) for part in segments]
    for got, want in zip(
        merge_partials(*parts[0], *parts[1]), KERNELS["math"].forward(query, key, value, whole, 1.0), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-14, atol=1e-14)


def test_merge_with_rows_that_have_no_keys() -> None:
    out, lse = torch.randn(3, 2, 4, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    nothing = torch.zeros_like(out), torch.full_like(lse, -torch.inf)
    for merged in (merge_partials(out, lse, *nothing), merge_partials(*nothing, out, lse)):
        assert torch.equal(merged[0], out)
        assert torch.equal(merged[1], lse)
    empty_out, empty_lse = merge_partials(*nothing, *nothing)
    assert bool((empty_out == 0).all())
    assert bool((empty_lse == -torch.inf).all())


def test_auto_takes_the_cpu_kernel_on_a_cpu() -> None:
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        assert choose_kernel("auto", torch.device("cpu"), dtype).name == "cpu"


def test_auto_on_a_gpu_goes_by_the_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    chosen = [
        choose_kernel("auto", torch.device("cuda"), dtype).name
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    ]
    assert chosen == ["flash", "flash", "flex", "math"]


@pytest.mark.parametrize(
    ("name", "device", "head_size", "dtype", "says"),
    [
        ("flash", "cuda", 128, torch.bfloat16, None),
        ("flash", "cuda", 256, torch.float16, None),
        ("flash", "cuda", 264, torch.bfloat16, "multiples of 8 up to 256, not 264"),
        ("flash3", "cuda", 100, torch.bfloat16, "multiples of 8 up to 256, not 100"),
        ("flash4", "cuda", 128, torch.float32, "bfloat16 and float16, not float32"),
        ("flex", "cuda", 264, torch.float32, None),
        ("flex", "cuda", 8, torch.bfloat16, "head sizes from 16, not 8"),
        ("flex", "cuda", 64, torch.float64, "float32, not float64"),
        ("flex", "cpu", 8, torch.float64, None),
        ("cpu", "cpu", 7, torch.float64, None),
        ("math", "cuda", 513, torch.float64, None),
    ],
)
def test_what_heads_a_kernel_takes(name: str, device: str, head_size: int, dtype: torch.dtype, says: str) -> None:
    reason = KERNELS[name].shape_refusal(torch.device(device), head_size, dtype)
    assert (reason is None) if says is None else (says in str(reason))


@pytest.mark.parametrize(
    ("name", "device", "says"),
    [
        ("fast", "cpu", "'fast' is not available; choose auto, math, cpu, flash, flash3, flash4, flex"),
        ("flash", "cpu", "kernel='flash' cannot run on device 'cpu': it needs a GPU; kernel='math' runs on any device"),
        ("flash3", "cpu", "it needs a GPU"),
        ("flex", "meta", "FlexAttention runs on CUDA and CPU"),
        ("cpu", "cuda", "cannot run on device 'cuda'"),
        ("auto", "meta", "no kernel for device 'meta'"),
    ],
)
def test_refusals_name_what_there_is(name: str, device: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        choose_kernel(name, torch.device(device))
