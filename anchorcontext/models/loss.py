"""Sum of token losses without ever materializing all logits.

The output projection and its cross entropy run over chunks of rows; a chunk's logits are computed
in the forward pass, dropped, and recomputed in the backward pass. The projection's gradient is summed
over chunks in float32: autograd would sum it in the weights' dtype, and the error of 256 chunks in
bf16 is then 14 times that of one; here it is 1.3 times, whatever the chunks.

Shapes: T rows of this rank, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from anchorcontext.errors import ConfigError
from anchorcontext.layout import IGNORED_LABEL
from anchorcontext.models.matmul import linear, matmul

LogitTransform = Callable[[Tensor], Tensor]


class CausalLMLoss(nn.Module):
    """A causal language model that returns its loss; parameters keep their names under `model.`.

    Args:
        model: a transformers causal language model.
        chunk_rows: rows whose logits exist at a time.
    """

    def __init__(self, model: PreTrainedModel, chunk_rows: int) -> None:
        super().__init__()
        self.model = model
        self.head = _ChunkedHead(model, chunk_rows)

    def forward(self, input_ids: Tensor, position_ids: Tensor, labels: Tensor, attention_context: Any = None) -> Tensor:
        """Sum of the losses of this rank's valid labels: float32 scalar, in nats.

        Args:
            input_ids, position_ids, labels: int64 [1, T]; labels are already shifted, -100 ignored.
            attention_context: what `ContextPlan.bind` returned for these rows.

        Without a valid label the result is 0 and still reaches every parameter, so that ranks stay
        in step.
        """
        hidden = hidden_states(self.model, input_ids, position_ids, attention_context)
        return self.head(hidden[0], labels[0]).sum()


@torch.no_grad()
def token_losses(
    model: PreTrainedModel,
    input_ids: Tensor,
    position_ids: Tensor,
    labels: Tensor,
    attention_context: Any,
    chunk_rows: int,
) -> Tensor:
    """Loss of each row's label, float32 [T], in nats; 0 where the label is -100. Arguments as `CausalLMLoss`."""
    hidden = hidden_states(model, input_ids, position_ids, attention_context)
    return _ChunkedHead(model, chunk_rows)(hidden[0], labels[0])


def hidden_states(model: PreTrainedModel, input_ids: Tensor, position_ids: Tensor, attention_context: Any) -> Tensor:
    """Hidden states after the last layer and norm, [1, T, D]. Arguments as `CausalLMLoss`."""
    context = {} if attention_context is None else {"attention_context": attention_context}
    return model.base_model(
        input_ids=input_ids, position_ids=position_ids, use_cache=False, **context
    ).last_hidden_state


class _ChunkedHead(nn.Module):
    """Losses of rows from their hidden states: [T, D], [T] -> float32 [T].

    Holds the output projection's own parameters, so that engines which gather parameters around a
    module's forward and backward find them here.
    """

    def __init__(self, model: PreTrainedModel, chunk_rows: int) -> None:
        super().__init__()
        projection = model.get_output_embeddings()
        if type(projection) is not nn.Linear:
            raise _refusal(model, f"its output projection is {type(projection).__name__}, not a linear layer")
        self.weight = projection.weight
        self.bias = projection.bias
        self.chunk_rows = chunk_rows
        self.transform = logit_transform(model.config)

    def forward(self, hidden: Tensor, labels: Tensor) -> Tensor:
        return _ChunkedLoss.apply(hidden, self.weight, self.bias, labels, self.chunk_rows, self.transform)


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        chunk_rows: int,
        transform: LogitTransform,
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias, labels)
        ctx.chunk_rows, ctx.transform = chunk_rows, transform
        losses = hidden.new_zeros(len(hidden), dtype=torch.float32)
        for start in range(0, len(hidden), chunk_rows):
            rows = slice(start, start + chunk_rows)
            logits = linear(hidden[rows], weight, bias)  # [chunk, V]
            losses[rows] = _row_losses(logits, labels[rows], transform)
        return losses

    @staticmethod
    def backward(ctx: Any, grad_losses: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, labels = ctx.saved_tensors
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=torch.float32)
        grad_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        for start in range(0, len(hidden), ctx.chunk_rows):
            rows = slice(start, start + ctx.chunk_rows)
            logits = linear(hidden[rows], weight, bias).requires_grad_()
            with torch.enable_grad():
                losses = _row_losses(logits, labels[rows], ctx.transform)
            (grad_logits,) = torch.autograd.grad(losses, logits, grad_losses[rows])
            grad_hidden[rows] = matmul(grad_logits, weight)
            grad_weight += matmul(grad_logits.T, hidden[rows])  # [V, chunk] @ [chunk, D]
            if grad_bias is not None:
                grad_bias += grad_logits.sum(0, dtype=torch.float32)
        return (
            grad_hidden,
            grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(weight.dtype),
            None,
            None,
            None,
        )


def logit_transform(config: Any) -> LogitTransform:
    """What a model does to its logits before the softmax, by the config fields that say so."""
    if scaling := getattr(config, "logits_scaling", None):  # Granite
        return lambda logits: logits / scaling
    if scale := getattr(config, "logit_scale", None):  # Cohere
        return lambda logits: logits * scale
    if cap := getattr(config, "final_logit_softcapping", None):  # Gemma 2
        return lambda logits: torch.tanh(logits / cap) * cap
    return lambda logits: logits


def _row_losses(logits: Tensor, labels: Tensor, transform: LogitTransform) -> Tensor:
    return F.cross_entropy(transform(logits).float(), labels, ignore_index=IGNORED_LABEL, reduction="none")


def _refusal(model: PreTrainedModel, fix: str) -> ConfigError:
    return ConfigError.of("model.path", type(model).__name__, fix)
