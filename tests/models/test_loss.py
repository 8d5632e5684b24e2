"""The chunked loss against autograd over whole logits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from anchorcontext.models import loss as loss_module
from anchorcontext.models.loss import CausalLMLoss, token_losses
from tests.models.tiny import tiny_model

ROWS = 50


def rows(vocabulary: int = 131) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    ids, labels = torch.randint(0, vocabulary, (2, 1, ROWS), generator=generator)
    labels[0, ::7] = -100
    return ids, torch.arange(ROWS)[None], labels


def whole_logits_loss(model: PreTrainedModel, ids: Tensor, positions: Tensor, labels: Tensor) -> Tensor:
    logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
    return F.cross_entropy(logits[0].float(), labels[0], reduction="none")


def gradients(model: PreTrainedModel) -> dict[str, Tensor]:
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    return found


@pytest.mark.parametrize("chunk_rows", [1, 7, 50, 1024])
@pytest.mark.parametrize("tied", [False, True])
def test_equals_whole_logits(chunk_rows: int, tied: bool) -> None:
    model = tiny_model(tie_word_embeddings=tied)
    batch = rows()
    expected = whole_logits_loss(model, *batch)
    (expected.sum() * 3).backward()
    expected_gradients = gradients(model)
    loss = CausalLMLoss(model, chunk_rows)(*batch)
    (loss * 3).backward()
    torch.testing.assert_close(loss, expected.sum(), rtol=1e-6, atol=0)
    torch.testing.assert_close(gradients(model), expected_gradients, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(token_losses(model, *batch, None, chunk_rows), expected.detach())


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("granite", {"logits_scaling": 8.0}),
        ("cohere", {"logit_scale": 0.0625}),
        ("gemma2", {"final_logit_softcapping": 3.0, "head_dim": 16}),
        ("phi", {}),  # an output projection with a bias
        ("qwen3", {"head_dim": 16}),
    ],
)
def test_models_that_change_their_logits(model_type: str, changes: dict[str, float]) -> None:
    model = tiny_model(model_type, attn="eager", **changes)
    batch = rows()
    whole_logits_loss(model, *batch).sum().backward()
    expected = gradients(model)
    CausalLMLoss(model, 16)(*batch).backward()
    torch.testing.assert_close(gradients(model), expected, rtol=1e-4, atol=1e-5)


def test_no_valid_label_is_zero_and_connected() -> None:
    model = tiny_model()
    ids, positions, labels = rows()
    loss = CausalLMLoss(model, 16)(ids, positions, torch.full_like(labels, -100))
    loss.backward()
    assert loss.item() == 0
    assert all((gradient == 0).all() for gradient in gradients(model).values())


def test_bf16_gradient_does_not_decay_with_chunks() -> None:
    torch.manual_seed(0)
    model = tiny_model().bfloat16()
    ids, labels = torch.randint(0, 131, (2, 1, 1024))
    positions = torch.arange(1024)[None]

    def head_gradient(chunk_rows: int) -> Tensor:
        CausalLMLoss(model, chunk_rows)(ids, positions, labels).backward()
        return gradients(model)["lm_head.weight"].double()

    with torch.no_grad():
        hidden = model.model(input_ids=ids, position_ids=positions, use_cache=False).last_hidden_state[0].double()
    weight = model.lm_head.weight.detach().double().requires_grad_()
    F.cross_entropy(hidden @ weight.T, labels[0], reduction="sum").backward()

    def error(chunk_rows: int) -> float:
        return ((head_gradient(chunk_rows) - weight.grad).norm() / weight.grad.norm()).item()

    assert error(4) < 1.5 * error(1024)  # 256 chunks; autograd's own sum in bf16 is off by 14 times as much


def test_logits_never_exist_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    linear = loss_module.linear

    def watched(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        seen.append(len(rows))
        return linear(rows, weight, bias)

    monkeypatch.setattr(loss_module, "linear", watched)
    CausalLMLoss(tiny_model(), 16)(*rows()).backward()
    assert seen == [16, 16, 16, 2] * 2  # forward and backward
