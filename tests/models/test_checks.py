"""Models that compute more, or other things, than is known here are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anchorcontext.config.errors import ConfigError
from anchorcontext.models.attention_interface import anchor_attention, register
from anchorcontext.models.checks import check_model
from tests.models.tiny import tiny_model


@pytest.fixture(autouse=True)
def _registered() -> None:
    register()


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("llama", {}),
        ("llama", {"tie_word_embeddings": True}),
        ("granite", {"logits_scaling": 8.0}),
        ("cohere", {"logit_scale": 0.0625}),
        ("phi", {}),
        ("qwen3", {"head_dim": 16}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_known_models_pass(model_type: str, changes: dict[str, Any], dtype: torch.dtype) -> None:
    model = tiny_model(model_type, attn="anchor", **changes).to(dtype)
    check_model(model)
    assert model.training  # left as it was


def test_auxiliary_loss_is_refused() -> None:
    with pytest.raises(ConfigError, match="auxiliary loss"):
        check_model(tiny_model("mixtral", output_router_logits=True, num_local_experts=2))


def test_unknown_logits_are_refused() -> None:
    model = tiny_model(attn="anchor")
    model.lm_head.register_forward_hook(lambda module, args, output: output * 2)
    with pytest.raises(ConfigError, match="more than a projection"):
        check_model(model)


def test_attention_without_the_context_is_refused() -> None:
    from transformers import AttentionInterface

    def drops_it(*args: Any, attention_context: object = None, position_ids: object = None, **kwargs: Any) -> Any:
        return anchor_attention(*args, **kwargs)

    AttentionInterface.register("drops_context", drops_it)
    with pytest.raises(ConfigError, match="documents leak"):
        check_model(tiny_model(attn="drops_context"))
