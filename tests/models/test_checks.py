"""Models that compute more, or other things, than is known here are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anchorcontext.attention import KernelMismatchError
from anchorcontext.context_parallel import function
from anchorcontext.errors import ConfigError
from anchorcontext.models.attention_interface import anchor_attention, register
from anchorcontext.models.checks import check_heads, check_kernel, check_model
from tests.models.test_families import FAMILIES, MIXTURES
from tests.models.tiny import tiny_config, tiny_model


@pytest.fixture(autouse=True)
def _registered() -> None:
    register()


def leaky(layers: set[int]) -> str:
    """The name of an attention that does not get the context in these layers."""
    from transformers import AttentionInterface

    def drops_it(
        module: Any, *args: Any, attention_context: Any = None, position_ids: Any = None, **kwargs: Any
    ) -> Any:
        given = None if module.layer_idx in layers else attention_context
        return anchor_attention(module, *args, attention_context=given, **kwargs)

    AttentionInterface.register("leaks_in_layers", drops_it)
    return "leaks_in_layers"


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        *((family, FAMILIES[family]) for family in MIXTURES),
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
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


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


@pytest.mark.parametrize("model_type", ["llama", *MIXTURES])
@pytest.mark.parametrize(("layer", "initializer_range", "dtype"), [(0, 1e-3, torch.float32), (1, 1e-3, torch.bfloat16)])
def test_a_leak_in_one_layer_is_refused_however_small(
    model_type: str, layer: int, initializer_range: float, dtype: torch.dtype
) -> None:
    changes = FAMILIES[model_type] | {"initializer_range": initializer_range}
    model = tiny_model(model_type, attn=leaky({layer}), **changes).to(dtype)
    with pytest.raises(ConfigError, match="documents leak"):
        check_model(model)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_leak_without_a_gradient_is_refused() -> None:
    from transformers import AttentionInterface

    def detached(*args: Any, attention_context: Any = None, position_ids: Any = None, **kwargs: Any) -> Any:
        with torch.no_grad():
            return anchor_attention(*args, **kwargs)

    AttentionInterface.register("leaks_without_gradient", detached)
    with pytest.raises(ConfigError, match="documents leak"):
        check_model(tiny_model(attn="leaks_without_gradient").eval())


def test_heads_of_different_sizes_are_refused_by_name() -> None:
    changes = FAMILIES["deepseek_v3"] | {"v_head_dim": 16}
    with pytest.raises(ConfigError, match="heads of different sizes are not supported"):
        check_model(tiny_model("deepseek_v3", attn="anchor", **changes))


@pytest.mark.parametrize(
    ("model_type", "changes", "words"),
    [
        ("mistral", {"sliding_window": 4}, "a sliding window"),
        ("gemma2", {"attn_logit_softcapping": 50.0, "layer_types": ["full_attention"] * 2}, "a soft cap"),
        ("llama", {"attention_dropout": 0.1}, "attention dropout (0.1)"),
    ],
)
def test_attention_that_is_more_is_refused_by_name(model_type: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_model(tiny_model(model_type, attn="anchor", **changes).train())
    (problem,) = error.value.problems
    assert problem.key == "model.path"
    assert words in problem.fix


def test_dropout_is_no_matter_to_a_model_that_is_not_trained() -> None:
    check_model(tiny_model(attn="anchor", attention_dropout=0.1).eval())


def test_a_kernel_is_checked_on_the_device_that_computes() -> None:
    check_kernel("auto", torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"attention\.kernel=cpu: does not run on device meta: choose math"):
        check_kernel("cpu", torch.device("meta"))


def test_heads_that_a_kernel_cannot_compute_are_named_before_weights_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    gpu, bf16 = torch.device("cuda"), torch.bfloat16
    wide = tiny_config(hidden_size=1200)  # four heads
    with pytest.raises(ConfigError) as error:
        check_heads("auto", gpu, wide, bf16)
    (problem,) = error.value.problems
    assert (problem.key, problem.value) == ("attention.kernel", "auto")
    assert problem.fix.startswith("flash, which auto takes here, takes head sizes that are multiples of 8 up to 256")
    assert problem.fix.endswith("for the model's heads of size 300 choose math, flex")
    with pytest.raises(ConfigError, match=r"attention\.kernel=flash: takes head sizes"):
        check_heads("flash", gpu, wide, bf16)
    with pytest.raises(ConfigError, match=r"of size 16 choose math, flex"):
        check_heads("flash", gpu, tiny_config(), torch.float32)
    check_heads("flash", gpu, tiny_config(), bf16)
    check_heads("flex", gpu, wide, bf16)
    check_heads("auto", torch.device("cpu"), wide, bf16)
    check_heads("auto", gpu, tiny_config("qwen3", head_dim=128, hidden_size=1200), bf16)
    with pytest.raises(ConfigError, match="of size 264"):
        check_heads("auto", gpu, tiny_config("deepseek_v3", qk_nope_head_dim=200, qk_rope_head_dim=64), bf16)


def test_a_kernel_that_fails_its_self_test_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> None:
        raise KernelMismatchError("its output is off")

    monkeypatch.setattr(function, "run_self_test", fails)
    with pytest.raises(ConfigError, match=r"attention\.kernel=cpu: its output is off"):
        check_model(tiny_model(attn="anchor"), "cpu")
