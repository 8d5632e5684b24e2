"""Checks on a few tokens that a model computes what this project assumes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from anchorcontext.attention import KERNELS, KernelMismatchError, choose_kernel
from anchorcontext.context_parallel import plan_context
from anchorcontext.errors import ConfigError
from anchorcontext.layout import WindowLayout
from anchorcontext.models.loss import hidden_states, token_losses

_ROWS = 8


def check_kernel(name: str, device: torch.device) -> None:
    """Refuse an attention kernel that cannot run on the device that will compute.

    Raises:
        ConfigError: naming those that can.
    """
    if not _runs(name, device):
        available = ", ".join(other for other in ("auto", *KERNELS) if _runs(other, device))
        raise ConfigError.of("attention.kernel", name, f"does not run on device {device.type}: choose {available}")


def check_heads(name: str, device: torch.device, model: Any, dtype: torch.dtype) -> None:
    """Refuse an attention kernel that cannot compute a model's heads, before its weights are read.

    Args:
        name: of a kernel that runs on `device`, or `auto`.
        model: a transformers config.
        dtype: of keys and values.

    Raises:
        ConfigError: naming the head size and the kernels that can.
    """
    kernel, head_size = choose_kernel(name, device, dtype), _head_size(model)
    reason = kernel.shape_refusal(device, head_size, dtype)
    if reason is None:
        return
    able = [
        other
        for other, candidate in KERNELS.items()
        if _runs(other, device) and candidate.shape_refusal(device, head_size, dtype) is None
    ]
    kernel_name = "" if kernel.name == name else f"{kernel.name}, which auto takes here, "
    fix = f"{kernel_name}{reason}: for the model's heads of size {head_size} choose {', '.join(able)}"
    raise ConfigError.of("attention.kernel", name, fix)


def check_model(model: PreTrainedModel, kernel: str = "auto") -> None:
    """Compare a model of `attn_implementation="anchor"` with its own logits, and look for leaks.

    On the model's device; a model in training mode is also checked for what it does only in training,
    such as dropout.

    Raises:
        ConfigError: a model whose logits are more than a known projection, whose loss is not a sum over
            tokens, whose attention is more than causal or does not get the context; a kernel that
            fails its self-test.
    """
    if getattr(model.config, "output_router_logits", False):
        raise _refusal(
            model,
            "its router's auxiliary loss is not a sum over tokens; set output_router_logits=false in its config.json",
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
    """Compare the losses of a few tokens with cross entropy over the model's own logits."""
    ids, positions, labels = _sample(model)
    ours = token_losses(model, ids, positions, labels, None, chunk_rows=3)
    logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
    theirs = F.cross_entropy(logits[0].float(), labels[0], reduction="none")
    if not _close(ours, theirs, logits.dtype):
        raise _refusal(model, "its logits are more than a projection of its hidden states, in an unknown way")


def check_context(model: PreTrainedModel, kernel: str) -> None:
    """Nothing of the first of two documents may reach the second.

    Its gradient tells a leak of any size from rounding: without a leak it is 0 to the last bit,
    whereas losses change in the last bits where experts compute a batch of other tokens. Losses, by
    `kernel` and to within rounding, then show what no gradient flows through.
    """
    ids, positions, labels = _sample(model)
    half = _ROWS // 2
    plan = plan_context(WindowLayout([half, half], arm="document"), 1)
    gradient = _gradient_of_second_half(model, ids, positions, plan.bind(kernel="math"))
    if not bool(gradient[half:].any()):
        raise _refusal(model, "no gradient reaches its embeddings, so nothing can show that documents do not leak")
    others = ids.clone()
    others[0, :half] = (ids[0, :half] + 1) % model.config.vocab_size
    context = plan.bind(kernel=kernel)
    before, after = (
        token_losses(model, tokens, positions, labels, context, chunk_rows=_ROWS)[half:] for tokens in (ids, others)
    )
    if bool(gradient[:half].any()) or not _close(before, after, gradient.dtype):
        raise _refusal(model, "its layers do not pass attention_context on to their attention, so documents leak")


def _gradient_of_second_half(model: PreTrainedModel, ids: Tensor, positions: Tensor, context: Any) -> Tensor:
    """Gradient of the second half's hidden states, weighted at random, by each row's embedding: [8, D].

    Weights get no gradient, so that no memory of their size is needed.
    """
    embedded: list[Tensor] = []

    def keep(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    hook = model.get_input_embeddings().register_forward_hook(keep)
    try:
        with _frozen(model), torch.enable_grad():
            hidden = hidden_states(model, ids, positions, context)[0, _ROWS // 2 :]  # [4, D]
            if not hidden.requires_grad:
                return torch.zeros_like(embedded[0][0])
            weights = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(0)).to(hidden)
            (gradient,) = torch.autograd.grad(hidden, embedded[0], weights)
    finally:
        hook.remove()
    return gradient[0]


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """No parameter asks for a gradient within."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def _close(losses: Tensor, others: Tensor, dtype: torch.dtype) -> bool:
    """Whether losses are equal but for the rounding of a model of that dtype."""
    tolerance = 1e-4 if dtype == torch.float32 else 0.05
    return torch.allclose(losses, others, rtol=tolerance, atol=tolerance)


def _head_size(model: Any) -> int:
    """Size of query and key heads, by a transformers config."""
    size = getattr(model, "qk_head_dim", None) or getattr(model, "head_dim", None)
    return int(size or model.hidden_size // model.num_attention_heads)


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
