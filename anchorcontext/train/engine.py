"""The DeepSpeed engine: its config, and how gradients become a step.

DeepSpeed averages gradients over the world and over accumulation steps. The loss here is the sum
over all ranks and micro-batches divided by the valid labels of the whole step, so each backward
pass scales its local sum by world size x accumulation steps / valid labels. DeepSpeed is told
nothing of context parallelism: to it, all ranks are data-parallel.
"""

from __future__ import annotations

import gc
import io
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import torch
from torch import Tensor, nn

from anchorcontext.machine import uses_gpu

if not uses_gpu():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read once, when DeepSpeed is imported

import deepspeed

from anchorcontext.config.schema import TrainConfig
from anchorcontext.models.loss import CausalLMLoss

# Compiled when a process group is joined, for inference alone: would cost the first run a minute.
getattr(deepspeed.ops, "__compatible_ops__", {})["deepspeed_shm_comm"] = False

# DeepSpeed calls collectives by names that newer releases of torch deprecate.
warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)

_BUCKET_ELEMENTS = 500_000_000
"""DeepSpeed's default for the elements reduced at a time; a smaller model needs no larger buffer."""


def deepspeed_config(config: TrainConfig, accumulation_steps: int, model: CausalLMLoss) -> dict[str, Any]:
    """DeepSpeed's JSON for a run: every dtype and the clipping explicit, for its defaults change."""
    bucket_elements = min(_BUCKET_ELEMENTS, sum(parameter.numel() for parameter in model.parameters()))
    zero: dict[str, Any] = {
        "stage": config.deepspeed.zero_stage,
        "reduce_bucket_size": bucket_elements,
        # norms and biases stay whole on every rank, matrices are divided, whatever the model's size
        "stage3_param_persistence_threshold": 10 * model.model.config.hidden_size,
    }
    for key, choice in (
        ("offload_optimizer", config.deepspeed.offload_optimizer),
        ("offload_param", config.deepspeed.offload_parameters),
    ):
        if choice == "cpu":
            zero[key] = {"device": "cpu", "pin_memory": True}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": accumulation_steps,
        "gradient_clipping": config.optim.max_grad_norm,
        "bf16": {"enabled": config.training.precision == "bf16", "check_grad_overflow": True},
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "fp32",
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": None,
    }


def build_engine(model: CausalLMLoss, config: TrainConfig, accumulation_steps: int) -> Any:
    """A DeepSpeed engine around the model, with AdamW; the process group must exist."""
    optim = config.optim
    optimizer = torch.optim.AdamW(
        parameter_groups(model, optim.weight_decay),
        lr=optim.lr,
        betas=(optim.betas[0], optim.betas[1]),
        eps=optim.eps,
        fused=True,
    )
    with _without_memory_reports():
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=deepspeed_config(config, accumulation_steps, model)
        )
    engine.train()
    return engine


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices with weight decay; norms and biases without."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for parameter in parameters if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def loss_scale(world_size: int, accumulation_steps: int, valid_labels: int) -> float:
    """What a local loss sum is multiplied by before `engine.backward` (see the module's docstring)."""
    return world_size * accumulation_steps / max(valid_labels, 1)


def take_step(engine: Any, learning_rate: float) -> float:
    """Clip, update, clear; returns the gradient norm before clipping, over all parameters.

    DeepSpeed leaves the parameters as they are where the norm is not finite.
    """
    for group in engine.optimizer.param_groups:
        group["lr"] = learning_rate
    norm = _gradient_norm(engine.module) if engine.zero_optimization_stage() == 0 else None
    if norm is not None and not math.isfinite(norm):
        return norm  # without ZeRO, nothing else would stop the update
    engine.step()
    return float(engine.get_global_grad_norm()) if norm is None else norm


def full_weights(engine: Any, keep: bool) -> dict[str, Tensor]:
    """Whole copies of the model's parameters on the CPU, by the model's own names; collective.

    Args:
        keep: whether this rank wants them; else it takes part and returns nothing.
    """
    weights = {}
    for name, parameter in engine.module.model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], enabled=hasattr(parameter, "ds_id")):
            if keep:
                weights[name] = parameter.detach().cpu().clone()
    return weights


@contextmanager
def _without_memory_reports() -> Iterator[None]:
    """DeepSpeed prints memory as it builds its optimizer, after a garbage collection each; no option stops it."""
    gc.freeze()  # makes those collections short
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        gc.unfreeze()


def _gradient_norm(module: nn.Module) -> float:
    """Norm over all parameters of gradients that are whole and equal on every rank."""
    norms = [parameter.grad.norm().double() for parameter in module.parameters() if parameter.grad is not None]
    return torch.stack(norms).norm().item()
