"""Proof, on a few tokens, that a model computes here what this project takes it to compute."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from anchorcontext.attention import KERNELS, KernelMismatchError, choose_kernel
from anchorcontext.config.errors import ConfigError
from anchorcontext.context_parallel import plan_context
from anchorcontext.layout import WindowLayout
from anchorcontext.models.loss import token_losses

_ROWS = 8


def check_kernel(name: str, device: torch.device) -> None:
    """Refuse an attention kernel that cannot run on the device that will compute.

    Raises:
        ConfigError: naming those that can.
    """
    if not _runs(name, device):
        available = ", ".join(other for other in ("auto", *KERNELS) if _runs(other, device))
        raise ConfigError.of("attention.kernel", name, f"does not run on device {device.type}: choose {available}")


def check_model(model: PreTrainedModel, kernel: str = "auto") -> None:
    """Compare a model of `attn_implementation="anchor"` with its own logits, and look for leaks.

    On the model's device; a model in training mode is also asked for what it does in training alone,
    such as dropout.

    Raises:
        ConfigError: a model whose logits are more than is known here, whose loss is no sum over
            tokens, whose attention is more than causal or does not get the context; a kernel that
            fails its self-test.
    """
    if getattr(model.config, "output_router_logits", False):
        raise _refusal(
            model,
            "its router's auxiliary loss is no sum over tokens; set output_router_logits=false in its config.json",
        )
    was_training = model.training
    try:
        if was_training:
            token_losses(model, *_sample(model), None, chunk_rows=_ROWS)
        model.eval()
        with torch.no_grad():
            check_loss(model)
            check_context(model, kernel)
    except KernelMismatchError as error:
        raise ConfigError.of("attention.kernel", kernel, str(error)) from error
    except ConfigError:
        raise
    except ValueError as error:  # what attention or its kernel refuses by name
        raise _refusal(model, str(error)) from error
    finally:
        model.train(was_training)


def check_loss(model: PreTrainedModel) -> None:
    """Our losses of a few tokens against cross entropy over the model's own logits."""
    ids, positions, labels = _sample(model)
    ours = token_losses(model, ids, positions, labels, None, chunk_rows=3)
    logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
    theirs = F.cross_entropy(logits[0].float(), labels[0], reduction="none")
    tolerance = 1e-4 if logits.dtype == torch.float32 else 0.05
    if not torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance):
        raise _refusal(model, "its logits are more than a projection of its hidden states in a way not known here")


def check_context(model: PreTrainedModel, kernel: str) -> None:
    """Other tokens in the first of two documents must leave the second one's losses as they are."""
    ids, positions, labels = _sample(model)
    layout = WindowLayout([_ROWS // 2, _ROWS // 2], arm="document")
    context = plan_context(layout, 1).bind(kernel=kernel)
    others = ids.clone()
    others[0, : _ROWS // 2] = (ids[0, : _ROWS // 2] + 1) % model.config.vocab_size
    before, after = (
        token_losses(model, tokens, positions, labels, context, chunk_rows=_ROWS)[_ROWS // 2 :]
        for tokens in (ids, others)
    )
    if not torch.equal(before, after):
        raise _refusal(model, "its layers do not hand attention_context on to their attention, so documents leak")


def _runs(name: str, device: torch.device) -> bool:
    try:
        choose_kernel(name, device)
    except ValueError:
        return False
    return True


def _sample(model: PreTrainedModel) -> tuple[Tensor, Tensor, Tensor]:
    """Ids that differ, from the whole vocabulary; positions; labels: int64 [1, 8] each."""
    device = next(model.parameters()).device
    ids = torch.arange(1, _ROWS + 1, device=device) * (model.config.vocab_size // (_ROWS + 1))
    return ids[None], torch.arange(_ROWS, device=device)[None], ids.roll(-1)[None]


def _refusal(model: PreTrainedModel, fix: str) -> ConfigError:
    return ConfigError.of("model.path", type(model).__name__, fix)
