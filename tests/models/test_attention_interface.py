"""Whole tiny models with `attn_implementation="anchor"`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedModel

import anchorcontext
from anchorcontext import WindowLayout, packed_attention, plan_context
from anchorcontext.context_parallel import take_rows
from anchorcontext.models.attention_interface import anchor_attention, anchor_mask
from anchorcontext.models.build import checkpoint_layers
from tests.context_parallel.cases import random_rows
from tests.models.tiny import tiny_model
from tests.workers import run_on


def anchor_model(model_type: str = "llama", **changes: Any) -> PreTrainedModel:
    anchorcontext.register()
    return tiny_model(model_type, attn="anchor", **changes)


def tokens(count: int, seed: int = 0) -> Tensor:
    return torch.randint(3, 131, (1, count), generator=torch.Generator().manual_seed(seed))


# The identity: a copy of the anchor a piece is one shared anchor.


@pytest.mark.parametrize("documents", [None, [0, 1, 0, 2, 1]], ids=["whole", "interleaved"])
def test_anchor_copies_equal_one_shared_anchor(documents: list[int] | None) -> None:
    """Hidden states of every layer, float64. The shared anchor goes through transformers' own attention (sdpa: its
    eager softmax rounds to float32) with an explicit mask, at the same positions, so with gaps.
    """
    layout = WindowLayout([9, 14, 1, 6, 11], document_ids=documents)
    ids = tokens(layout.num_rows)
    copies = torch.from_numpy(layout.piece_offsets)
    ids[0, copies] = 1
    model = anchor_model().double()
    context = plan_context(layout, 1).bind()
    packed = model.model(
        ids, position_ids=layout.position_ids[None], attention_context=context, output_hidden_states=True
    ).hidden_states

    is_copy = torch.zeros(layout.num_rows, dtype=torch.bool).index_fill_(0, copies, True)
    kept = torch.cat([copies[:1], torch.nonzero(~is_copy).flatten()])
    owner = torch.from_numpy(layout.document_ids).repeat_interleave(torch.from_numpy(layout.piece_lengths))[kept]
    mask = (owner[:, None] == owner[None, :]).tril()
    mask[:, 0] = True
    mask[0, 1:] = False
    model.set_attn_implementation("sdpa")
    shared = model.model(
        ids[:, kept],
        position_ids=layout.position_ids[None, kept],
        attention_mask=mask[None, None],
        output_hidden_states=True,
    ).hidden_states
    assert len(packed) == len(shared) == 3
    for ours, theirs in zip(packed, shared, strict=True):
        torch.testing.assert_close(ours[:, kept], theirs, rtol=1e-12, atol=1e-12)


def test_anchor_merges_into_document_attention() -> None:
    """out = sigmoid(lse - a) * o + sigmoid(a - lse) * v_anchor, with a the anchor's score."""
    query, key, value, _ = random_rows(12, 2, 2, 4)
    with_anchor = packed_attention(query, key, value, plan_context(WindowLayout([12]), 1).bind())
    alone = plan_context(WindowLayout([11], arm="document"), 1).bind()
    out, lse = packed_attention(query[1:], key[1:], value[1:], alone, return_lse=True)
    score = torch.einsum("ihd,hd->ih", query[1:], key[0]) / 4**0.5
    merged = torch.sigmoid(lse - score)[..., None] * out + torch.sigmoid(score - lse)[..., None] * value[0]
    torch.testing.assert_close(with_anchor[1:], merged, rtol=1e-13, atol=1e-13)


# No document leaks into another.

LAYOUT = WindowLayout([17, 30, 8, 21], document_ids=[0, 1, 0, 2], num_rows=80)
CHANGED = 1


def logits_and_gradients(seed_of_changed: int, checkpointing: bool, train: bool) -> tuple[Tensor, Tensor, Tensor]:
    """This rank's rows, logits, and gradients of its inputs for a loss on all documents but the changed one."""
    model = anchor_model()
    model.train(train)
    if checkpointing:
        checkpoint_layers(model)
    group = dist.group.WORLD if dist.is_initialized() else None
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    context = plan_context(LAYOUT, ranks, policy="zigzag").bind(group)
    is_changed = LAYOUT.segment_ids == CHANGED
    ids = torch.where(is_changed, tokens(80, seed_of_changed)[0], tokens(80)[0])
    embedded = model.get_input_embeddings()(take_rows(ids, context.rows, 1)[None]).detach().requires_grad_()
    logits = model(
        inputs_embeds=embedded,
        position_ids=take_rows(LAYOUT.position_ids, context.rows, 0)[None],
        attention_context=context,
        use_cache=False,
    ).logits
    others = ~take_rows(is_changed, context.rows, True)
    (logits[0] * others[:, None]).square().sum().backward()
    return context.rows, logits[0].detach(), embedded.grad[0]


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_no_document_leaks_into_another(ranks: int, checkpointing: bool, train: bool) -> None:
    results = [
        run_on(ranks, logits_and_gradients, seed, checkpointing, train)
        if ranks > 1
        else [logits_and_gradients(seed, checkpointing, train)]
        for seed in (1, 2)
    ]
    changed_somewhere = False
    for (rows, logits, grads), (_, other_logits, other_grads) in zip(*results, strict=True):
        changed = take_rows(LAYOUT.segment_ids == CHANGED, rows, False)
        assert torch.equal(logits[~changed], other_logits[~changed])
        assert torch.equal(grads[~changed], other_grads[~changed])
        assert not grads[changed].any()
        changed_somewhere |= not torch.equal(logits[changed], other_logits[changed])
    assert changed_somewhere


# Without a context.


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "mistral"])
def test_generates_what_eager_attention_generates(model_type: str) -> None:
    changes = {"sliding_window": None} if model_type == "mistral" else {}
    model = anchor_model(model_type, **changes).eval()
    generated = model.generate(tokens(11), max_new_tokens=12, do_sample=False, pad_token_id=0)
    model.set_attn_implementation("eager")
    expected = model.generate(tokens(11), max_new_tokens=12, do_sample=False, pad_token_id=0)
    assert torch.equal(generated, expected)
    assert generated.shape == (1, 23)


def test_register_twice() -> None:
    anchorcontext.register()
    anchorcontext.register()


# What is not supported is refused by name.

RESTARTING = torch.cat([torch.arange(9), torch.arange(11)])[None]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"attention_mask": torch.tensor([[0, 0] + [1] * 18])}, "does not support a padding mask"),
        ({"attention_mask": torch.ones(1, 1, 20, 20, dtype=torch.bool).tril()}, "does not support attention_mask"),
        ({"position_ids": RESTARTING}, "position_ids do not count up .* pass attention_context="),
        ({"position_ids": RESTARTING, "use_cache": False}, "position_ids do not count up"),
        ({"cu_seq_lens_q": torch.tensor([0, 9, 20])}, "cu_seq_lens_q"),
        ({"is_causal": False}, "a mask that is not causal"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        anchor_model().eval()(tokens(20), **arguments)


def test_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 2: windows are concatenated"):
        anchor_model()(tokens(20).reshape(2, 10))


def test_a_padded_batch_of_prompts_is_refused() -> None:
    mask = torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]])
    with pytest.raises(ValueError, match=r"padding mask .*prompt by prompt"):
        anchor_model().generate(tokens(10).reshape(2, 5), attention_mask=mask, max_new_tokens=2, pad_token_id=0)


def test_a_context_for_other_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="the plan gives this rank 14"):
        anchor_model()(tokens(20), attention_context=plan_context(WindowLayout([14]), 1).bind())


def test_a_static_cache_is_refused() -> None:
    with pytest.raises(ValueError, match="static cache"):
        anchor_model().generate(tokens(6), max_new_tokens=3, cache_implementation="static", pad_token_id=0)


@pytest.mark.parametrize(
    ("model_type", "changes", "says"),
    [
        ("mistral", {"sliding_window": 8}, "a sliding window"),
        ("mistral", {"sliding_window": 4096}, "a sliding window"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}, "a sliding window"),
        ("gemma2", {"head_dim": 16, "layer_types": ["full_attention"] * 2}, "a soft cap of the scores"),
        ("gemma2", {"head_dim": 16}, "a sliding window"),
        (
            "gpt_oss",
            {
                "head_dim": 16,
                "layer_types": ["full_attention"] * 2,
                "num_local_experts": 2,
                "num_experts_per_tok": 1,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
            },
            "learned attention sinks",
        ),
        ("llama", {"attention_dropout": 0.1}, "attention dropout \\(0.1\\); set config.attention_dropout = 0"),
    ],
)
def test_models_that_are_refused(model_type: str, changes: dict[str, Any], says: str) -> None:
    model = anchor_model(model_type, **changes).train()
    context = plan_context(WindowLayout([20]), 1).bind()
    for arguments in ({}, {"attention_context": context}):
        with pytest.raises(ValueError, match=says):
            model(tokens(20), use_cache=False, **arguments)


def test_dropout_is_fine_where_nothing_is_dropped() -> None:
    anchor_model(attention_dropout=0.1).eval()(tokens(20))


def test_custom_masks_are_refused() -> None:
    def causal(_batch: Any, _head: Any, row: Tensor, key: Tensor) -> Tensor:
        return key <= row

    def blocks(_batch: Any, _head: Any, row: Tensor, key: Tensor) -> Tensor:
        return (key <= row) | (key // 4 == row // 4)

    anchor_mask(1, 8, 8, mask_function=causal, allow_is_causal_skip=False)
    with pytest.raises(ValueError, match="a mask that is not causal"):
        anchor_mask(1, 8, 8, mask_function=blocks, allow_is_causal_skip=False)
    with pytest.raises(ValueError, match="a custom mask function"):
        anchor_mask(1, 8, 8, mask_function=causal, use_vmap=True)


def test_attention_that_is_not_causal_is_refused() -> None:
    rows = torch.zeros(1, 2, 4, 8)
    module = torch.nn.Module()
    module.is_causal = False
    with pytest.raises(ValueError, match="attention that is not causal"):
        anchor_attention(module, rows, rows, rows, None)


def test_a_mask_that_no_layer_uses_is_no_reason_to_refuse() -> None:
    """Gemma 2 asks for both of its masks whatever its layers are."""
    model = anchor_model("gemma2", head_dim=16, layer_types=["full_attention"] * 2, attn_logit_softcapping=None)
    model.eval()(tokens(20), use_cache=False)


@pytest.mark.parametrize("keyword", ["sliding_window", "softcap", "s_aux", "position_bias", "head_mask", "score_mod"])
def test_keywords_that_change_attention_are_refused(keyword: str) -> None:
    rows = torch.zeros(1, 2, 4, 8)
    with pytest.raises(ValueError, match="attn_implementation='anchor' does not support"):
        anchor_attention(torch.nn.Module(), rows, rows, rows, None, **{keyword: 1})
