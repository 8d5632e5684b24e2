"""The training loop."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from anchorcontext.config.schema import TrainConfig
from anchorcontext.errors import RunError
from anchorcontext.train.batches import StepBatch, check_shared
from anchorcontext.train.checkpoint import TrainState
from anchorcontext.train.engine import loss_scale, take_step
from anchorcontext.train.export import export
from anchorcontext.train.metrics import Metrics, peak_memory_gib
from anchorcontext.train.ranks import Ranks, join_ranks
from anchorcontext.train.report import open_reporter
from anchorcontext.train.run_folder import RunFolder
from anchorcontext.train.schedule import learning_rate
from anchorcontext.train.setup import Run, start


class NotFiniteError(RunError):
    """A loss or a gradient norm that is infinite or not a number."""


def train(config: TrainConfig) -> None:
    """Train as the config says, from the beginning or from the newest checkpoint, and export the model.

    Raises:
        ConfigError, DataError: before the first step.
        NotFiniteError: naming the step; nothing of that step is saved.
    """
    folder = RunFolder(config.run.folder)
    with join_ranks(config.context_parallel.size) as ranks, folder.hold(ranks):
        run = start(config, folder, ranks)
        state = run_steps(run)
        exported = export(run, state)
        if ranks.is_main:
            print(f"{config.run.name}: {state.step} steps, {state.tokens:,} tokens; the model is {exported}")


def run_steps(run: Run) -> TrainState:
    """Take all steps that are left; returns where the run then stands."""
    ranks, engine, batches, state = run.ranks, run.engine, run.batches, run.state
    training, last_step = run.config.training, run.config.training.steps
    with open_reporter(run) as report:
        for batch in batches.steps(state.step + 1, last_step):
            started, step = time.perf_counter(), batch.step
            if step == run.state.step + 1:
                check_shared(batch, ranks)
            if run.config.context_parallel.check_plans:
                for micro_batch in batch.micro_batches:
                    micro_batch.context.check_agreement()

            valid_labels, tokens = (int(total) for total in ranks.sum(batch.valid_labels, batch.tokens))
            loss = check_finite("loss", forward_backward(engine, batch, ranks, valid_labels), step)
            rate = learning_rate(run.config.optim, step, last_step)
            grad_norm = check_finite("gradient norm", take_step(engine, rate), step)
            state = state.after(step, tokens, batches.state_after(step))

            if step % training.log_every_steps == 0 or step == last_step:
                seconds = time.perf_counter() - started
                metrics: Metrics = {
                    "step": step,
                    "loss": loss,
                    "grad_norm": grad_norm,
                    "learning_rate": rate,
                    "tokens": state.tokens,
                    "valid_labels": valid_labels,
                    "step_seconds": seconds,
                    "tokens_per_second": tokens / seconds,
                    "peak_memory_gib": ranks.max(peak_memory_gib(ranks.device)),
                    "epoch": state.data.epoch,
                    "windows_consumed": state.data.windows_consumed,
                }
                report.log(metrics)
            report.advance(step)
            if step == last_step or (training.save_every_steps and step % training.save_every_steps == 0):
                run.checkpoints.save(engine, state)
    return state


def forward_backward(engine: Any, batch: StepBatch, ranks: Ranks, valid_labels: int) -> float:
    """Gradients of a whole step, into the engine; its loss over all ranks, in nats a valid label."""
    scale = loss_scale(ranks.world_size, len(batch.micro_batches), valid_labels)
    local_sum = torch.zeros((), dtype=torch.float64, device=ranks.device)
    for number, micro in enumerate(batch.micro_batches, start=1):
        loss_sum = engine(micro.input_ids, micro.position_ids, micro.labels, micro.context)
        engine.backward(loss_sum * scale)
        local_sum += loss_sum.detach()
        if number < len(batch.micro_batches):
            engine.step()  # counts the micro-batch; DeepSpeed updates at the last one alone
    return ranks.sum(local_sum.item())[0] / max(valid_labels, 1)


def check_finite(what: str, value: float, step: int) -> float:
    """The value, where it is finite; it must be the same on every rank.

    Raises:
        NotFiniteError: naming the step.
    """
    if not math.isfinite(value):
        raise NotFiniteError(
            f"the {what} of step {step} is {value}: training stops and nothing of this step is saved. Go on from "
            "the last checkpoint with a lower optim.lr, or look at the step's windows with `anchorcontext inspect`"
        )
    return value
