"""BF16 products on CPUs without BF16 units: the values of a BF16 product, at float32's speed."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from anchorcontext.models import matmul as module
from anchorcontext.models.matmul import linear, matmul, use_fast_linears

ONE_ROUNDING = {"rtol": 2**-8, "atol": 1e-5}
"""Float32 sums of exact products, rounded to BF16 once: at most a neighbouring BF16 number."""


@pytest.fixture
def plain_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CPU without BF16 units, whatever this one has."""
    monkeypatch.setattr(module, "_cpu_multiplies_bf16", lambda: False)


def _tiny_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config).to(torch.bfloat16)


@pytest.mark.usefixtures("plain_cpu")
def test_products_round_the_exact_result_once() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(3, 7, 200, generator=generator).bfloat16()
    weight = torch.randn(11, 200, generator=generator).bfloat16()
    bias = torch.randn(11, generator=generator).bfloat16()
    exact = rows.double() @ weight.double().T
    torch.testing.assert_close(matmul(rows, weight.T), exact.bfloat16(), **ONE_ROUNDING)
    torch.testing.assert_close(linear(rows, weight, bias), (exact + bias.double()).bfloat16(), **ONE_ROUNDING)


@pytest.mark.usefixtures("plain_cpu")
def test_gradients_of_a_layer_with_other_products() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(40, 24).bfloat16()
    fast = module._FastLinear(layer)
    rows = torch.randn(2, 9, 40).bfloat16()
    exact = nn.Linear(40, 24).double()
    exact.load_state_dict(layer.state_dict())
    upstream = torch.randn(2, 9, 24, dtype=torch.bfloat16)
    results = []
    for linear_layer, dtype in ((fast, torch.bfloat16), (exact, torch.float64)):
        inputs = rows.to(dtype, copy=True).requires_grad_()
        linear_layer(inputs).backward(upstream.to(dtype))
        results.append([inputs.grad, *(parameter.grad for parameter in linear_layer.parameters())])
    for ours, reference in zip(*results, strict=True):
        torch.testing.assert_close(ours, reference.bfloat16(), **ONE_ROUNDING)


@pytest.mark.usefixtures("plain_cpu")
def test_a_model_keeps_its_parameters_and_its_outputs() -> None:
    plain, fast = _tiny_llama(), _tiny_llama()
    use_fast_linears(fast)
    assert sum(isinstance(layer, module._FastLinear) for layer in fast.modules()) == 14
    assert type(fast.lm_head) is nn.Linear
    assert list(fast.state_dict()) == list(plain.state_dict())
    ids = torch.arange(20)[None]
    torch.testing.assert_close(fast(input_ids=ids).logits, plain(input_ids=ids).logits, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_changes_where_nothing_is_slow(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cpu_multiplies_bf16", lambda: dtype == torch.bfloat16)
    model = _tiny_llama().to(dtype)
    use_fast_linears(model)
    assert not any(isinstance(layer, module._FastLinear) for layer in model.modules())
