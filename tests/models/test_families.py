"""Model families with `attn_implementation="anchor"`: one rank equals a dense mask, two ranks equal one.

Tiny random models in float64. Each rank holds ceil(N / P) rows of every layer's activations.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import anchorcontext
from anchorcontext import WindowLayout, plan_context
from anchorcontext.context_parallel import take_rows
from tests.models.tiny import tiny_model
from tests.workers import run_on

LAYOUT = WindowLayout([11, 1, 18, 5], num_rows=37)
"""Rows that do not divide by two ranks, a document of one row, and padding."""

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {
        "head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "decoder_sparse_step": 1,
        "norm_topk_prob": True,
    },
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "glm4_moe": {
        "head_dim": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
    },
    "deepseek_v3": {
        "num_key_value_heads": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
        "q_lora_rank": None,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
    },
    "phi3": {},
    "olmo2": {},
    "granite": {"attention_multiplier": 0.2, "residual_multiplier": 0.5},
    "smollm3": {"no_rope_layers": [1, 0], "use_sliding_window": False},
    "starcoder2": {"sliding_window": None},
    "gemma2": {"head_dim": 16, "layer_types": ["full_attention"] * 2, "attn_logit_softcapping": None},
    "gemma3_text": {"head_dim": 16, "layer_types": ["full_attention"] * 2},
}
"""Families, and what their configs need to be tiny and without a window or soft cap."""

MIXTURES = ("qwen3_moe", "mixtral", "olmoe", "glm4_moe", "deepseek_v3")
"""Those of several experts."""

ROUTED_IN_FLOAT32 = ("glm4_moe", "deepseek_v3")
"""Those whose routers compute in float32 whatever the model's dtype: results agree to its rounding."""


def hidden_states(family: str, attn: str) -> tuple[Tensor, list[Tensor]]:
    """This rank's rows, and the hidden states of every layer there, [T_local, hidden size]."""
    anchorcontext.register()
    model = tiny_model(family, attn=attn, **FAMILIES[family]).double().eval()
    if family in MIXTURES:
        model.set_experts_implementation("eager")  # grouped products of matrices have no float64
    ids = torch.randint(3, 131, (LAYOUT.num_rows,), generator=torch.Generator().manual_seed(0))
    if attn == "anchor":
        group = dist.group.WORLD if dist.is_initialized() else None
        context = plan_context(LAYOUT, 1 if group is None else dist.get_world_size(), policy="zigzag").bind(group)
        rows, masking = context.rows, {"attention_context": context}
    else:
        rows = torch.arange(LAYOUT.num_rows)
        mask = dense_mask()  # eager attention adds its mask to the scores
        masking = {"attention_mask": torch.where(mask, 0.0, -1e30).double() if attn == "eager" else mask}
    states = model.model(
        take_rows(ids, rows, 1)[None],
        position_ids=take_rows(LAYOUT.position_ids, rows, 0)[None],
        output_hidden_states=True,
        use_cache=False,
        **masking,
    ).hidden_states
    return rows, [state[0].detach() for state in states]


def dense_mask() -> Tensor:
    """The layout's mask, [1, 1, rows, rows]; padding sees itself, for a softmax of no score is not a number."""
    return (LAYOUT.dense_mask() | torch.diag(LAYOUT.segment_ids < 0))[None, None]


def all_hidden_states() -> dict[str, tuple[Tensor, list[Tensor]]]:
    return {family: hidden_states(family, "anchor") for family in FAMILIES}


@pytest.fixture(scope="module")
def on_two_ranks() -> list[dict[str, tuple[Tensor, list[Tensor]]]]:
    return run_on(2, all_hidden_states)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_rank_equals_a_dense_mask(family: str) -> None:
    used = LAYOUT.segment_ids >= 0
    _, states = hidden_states(family, "anchor")
    attn = "eager" if family == "gemma2" else "sdpa"
    tolerance = 1e-5 if family in ("gemma2", *ROUTED_IN_FLOAT32) else 1e-9  # eager softmax is float32
    _, expected = hidden_states(family, attn)
    assert len(states) == len(expected) == 3
    for ours, theirs in zip(states, expected, strict=True):
        assert ours[used].abs().max() > 1e-3
        torch.testing.assert_close(ours[used], theirs[used], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("family", FAMILIES)
def test_two_ranks_equal_one_and_hold_half_the_rows(
    family: str, on_two_ranks: list[dict[str, tuple[Tensor, list[Tensor]]]]
) -> None:
    used = LAYOUT.segment_ids >= 0
    _, expected = hidden_states(family, "anchor")
    tolerance = 1e-5 if family in ROUTED_IN_FLOAT32 else 1e-9
    seen = torch.zeros(LAYOUT.num_rows, dtype=torch.bool)
    for rank in on_two_ranks:
        rows, states = rank[family]
        assert [len(state) for state in states] == [19, 19, 19]  # ceil(37 / 2)
        seen[rows[rows >= 0]] = True
        real = (rows >= 0) & take_rows(used, rows, False)
        for state, whole in zip(states, expected, strict=True):
            torch.testing.assert_close(state[real], whole[rows[real]], rtol=tolerance, atol=tolerance)
    assert seen.all()


@pytest.mark.parametrize(
    ("family", "changes", "says"),
    [
        ("gemma2", {"attn_logit_softcapping": 50.0}, "a soft cap of the scores"),
        ("gemma2", {"layer_types": ["sliding_attention", "full_attention"]}, "a sliding window"),
        ("gemma3_text", {"layer_types": ["sliding_attention", "full_attention"]}, "a sliding window"),
        ("phi3", {"sliding_window": 8}, "a sliding window"),
        ("mixtral", {"sliding_window": 8}, "a sliding window"),
        ("starcoder2", {"sliding_window": 8}, "a sliding window"),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 8}, "a sliding window"),
    ],
)
def test_what_a_family_cannot_have_is_refused(family: str, changes: dict[str, Any], says: str) -> None:
    anchorcontext.register()
    model = tiny_model(family, attn="anchor", **{**FAMILIES[family], **changes}).eval()
    context = plan_context(LAYOUT, 1).bind()
    with pytest.raises(ValueError, match=says):
        model(torch.ones(1, LAYOUT.num_rows, dtype=torch.int64), attention_context=context, use_cache=False)
