"""`attn_implementation="anchor"`: packed attention as transformers' attention and mask functions.

Only transformers' public registries are used. The context comes as a model keyword
(`model(..., attention_context=context)`), which every decoder hands down to the attention function.
Whatever a model asks for beyond causal attention is refused by name: a mask that is silently
replaced by plain causal attention trains another model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from anchorcontext.context_parallel import AttentionContext, causal_attention, packed_attention

NAME = "anchor"
"""Value of `attn_implementation`."""

_UNSUPPORTED = {
    "sliding_window": "a sliding window",
    "softcap": "a soft cap of the scores",
    "s_aux": "learned attention sinks",
    "position_bias": "a position bias",
    "head_mask": "a head mask",
    "score_mod": "a score modification",
    "block_mask": "a block mask",
    "cu_seq_lens_q": "sequence lengths of flash attention (cu_seq_lens_q)",
    "cu_seq_lens_k": "sequence lengths of flash attention (cu_seq_lens_k)",
}
"""Keywords by which transformers' models change what attention computes."""


def register() -> None:
    """Make `attn_implementation="anchor"` known to transformers. May be called again."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, anchor_attention)
    AttentionMaskInterface.register(NAME, anchor_mask)


def anchor_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    attention_context: AttentionContext | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention function. Query [1, Hq, T, D], key and value [1, Hkv, S, D] -> [1, T, Hq, D].

    With a context: attention of the planned window. Without: causal, aligned bottom-right.

    Raises:
        ValueError: anything but that, by name.
    """
    _check_keywords(module, dropout, kwargs)
    if len(query) != 1:
        raise ValueError(
            f"attn_implementation={NAME!r} got a batch of {len(query)}: windows are concatenated into a "
            "batch of 1 (WindowLayout.concatenate); generate for several prompts one at a time"
        )
    if attention_mask is not None and attention_mask.numel() == 0:
        raise ValueError(_refusal("a sliding window or attention chunks"))
    if attention_mask is not None:
        raise ValueError(_refusal("attention_mask") + "; attention_context describes documents and padding")
    query, key, value = (tensor[0].transpose(0, 1) for tensor in (query, key, value))  # [1, H, T, D] -> [T, H, D]
    if attention_context is not None:
        return packed_attention(query, key, value, attention_context, scale=scaling)[None], None
    _check_positions(kwargs.get("position_ids"))
    return causal_attention(query, key, value, scale=scaling)[None], None


def anchor_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Tensor] | None = None,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> Tensor | None:
    """The mask function: no mask is built; whatever would need one is refused by name.

    Documents that transformers guesses from `position_ids` are left to the attention function,
    which knows whether there is a context.

    Returns:
        None; for a sliding window or attention chunks an empty tensor, which the attention function
        refuses: some models ask for such a mask though none of their layers uses it.

    Raises:
        ValueError: the feature that is not supported.
    """
    if use_vmap:
        raise ValueError(_refusal("a custom mask function"))
    if int(q_offset) + q_length != kv_offset + kv_length:
        raise ValueError(_refusal("a cache with room for future rows (static cache)"))
    if attention_mask is not None and not bool(attention_mask.all()):
        raise ValueError(
            _refusal("a padding mask (attention_mask with zeros)")
            + ". Pack the documents into one row, or generate without padding, prompt by prompt"
        )
    if not allow_is_causal_skip and (mask_function is None or _sees_ahead(mask_function, q_length, device)):
        raise ValueError(_refusal("a mask that is not causal"))
    return None if local_size is None else torch.empty(batch_size, 1, 0, 0)


def _check_keywords(module: nn.Module, dropout: float, kwargs: dict[str, Any]) -> None:
    for keyword, meaning in _UNSUPPORTED.items():
        if kwargs.get(keyword) is not None:
            raise ValueError(_refusal(meaning))
    if dropout:
        raise ValueError(_refusal(f"attention dropout ({dropout}); set config.attention_dropout = 0"))
    causal = kwargs.get("is_causal")
    if not (getattr(module, "is_causal", True) if causal is None else causal):
        raise ValueError(_refusal("attention that is not causal"))


def _check_positions(position_ids: Tensor | None) -> None:
    """Without a context a row is one sequence: positions that do not count up show that it is not."""
    if position_ids is not None and bool((position_ids.diff(dim=-1) != 1).any()):
        raise ValueError(
            "position_ids do not count up one by one, so the row holds more than one sequence, but no "
            "attention_context says which rows belong to which: pass attention_context= to the model (documents are "
            "never guessed from positions)"
        )


def _refusal(feature: str) -> str:
    return f"attn_implementation={NAME!r} does not support {feature}"


def _sees_ahead(mask_function: Callable[..., Tensor], num_rows: int, device: torch.device | str) -> bool:
    """Whether some row of the mask sees the row after it, as blocks that attend both ways do."""
    rows = torch.arange(max(num_rows - 1, 0), device=device)
    zeros = torch.zeros_like(rows)  # not scalars: indexing by one reads it back from the device
    return bool(mask_function(zeros, zeros, rows, rows + 1).any())
