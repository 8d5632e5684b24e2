"""The check of a whole config, before any process group or GPU work: every problem, not the first.

Pure but for looking at files the config names. What cannot be known yet (a hub name, what is inside
a model) is left to run time.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from anchorcontext.config.errors import Problem
from anchorcontext.config.fields import RANGES, field_problems, how_to_give, nested_problems
from anchorcontext.config.files import index_problems, model_problems, tokenizer_problems, weights_problems
from anchorcontext.config.pack_check import pack_problems
from anchorcontext.config.schema import (
    BalanceConfig,
    ContextParallelConfig,
    EvaluateConfig,
    ExportDataConfig,
    InspectConfig,
    PackConfig,
    ReportConfig,
    SimulateConfig,
    TrainConfig,
)
from anchorcontext.machine import uses_gpu


def problems(config: Any, *, world_size: int = 1, has_gpu: Callable[[], bool] = uses_gpu) -> list[Problem]:
    """Everything wrong with a config.

    Args:
        config: an instance of one of `SCHEMAS`; missing values are `???`.
        world_size: ranks of the job.
        has_gpu: asked only where the answer matters.
    """
    if found := list(nested_problems(config)):
        return found  # the other rules take the types for granted
    found = list(field_problems(config))
    match config:
        case PackConfig():
            found += pack_problems(config)
            found += balance_problems(config.balance)
        case InspectConfig():
            if config.data.index == MISSING and (not config.verify or config.data.store == MISSING):
                found.append(Problem("data.index", MISSING, how_to_give("data.index")))
            found += index_problems(config.data)
            found += _suffix_problems("picture", config.picture, (".png", ".svg", ".pdf"))
            found += _suffix_problems("statistics", config.statistics, (".html",))
            found += balance_problems(config.balance)
        case ExportDataConfig():
            found += index_problems(config.data)
            output = Path(config.output).expanduser().resolve()
            if config.output != MISSING and glob.has_magic(str(output)):
                fix = f"datasets.load_dataset takes {output} for a pattern: choose a folder without *, ? and ["
                found.append(Problem("output", config.output, fix))
        case TrainConfig():
            found += _train_problems(config, world_size, has_gpu)
        case EvaluateConfig():
            found += _evaluate_problems(config, world_size, has_gpu)
        case SimulateConfig():
            found += _simulate_problems(config)
        case ReportConfig():
            found += _report_problems(config)
        case _:
            raise TypeError(f"no check for a {type(config).__name__}")
    return found


def _train_problems(config: TrainConfig, world_size: int, has_gpu: Callable[[], bool]) -> Iterator[Problem]:
    yield from model_problems("model.path", config.model.path)
    if config.model.init == "pretrained":
        yield from weights_problems("model.path", config.model.path)
    if config.model.tokenizer != config.model.path or Path(config.model.path).expanduser().is_dir():
        yield from tokenizer_problems("model.tokenizer", config.model.tokenizer)
    yield from index_problems(config.data)
    yield from _rank_problems(config.context_parallel.size, world_size)
    yield from _policy_problems(config.context_parallel)
    yield from _batch_problems(config, world_size)
    yield from _deepspeed_problems(config, has_gpu)
    yield from _kernel_problems(config.attention.kernel, config.training.precision, has_gpu, trains=True)
    if config.context_parallel.exchange == "ring_flash_attn" and config.context_parallel.size > 1 and not has_gpu():
        yield Problem("context_parallel.exchange", "ring_flash_attn", "needs a GPU, and there is none: gather or ring")
    yield from _optim_problems(config)
    if config.training.keep_attention and not config.training.gradient_checkpointing:
        fix = "keeps nothing where nothing is recomputed: training.gradient_checkpointing=true, or leave it out"
        yield Problem("training.keep_attention", True, fix)
    if config.run.resume not in ("auto", "never"):
        fix = "no checkpoint there: give auto, never, or the path of a checkpoint folder"
        if not Path(config.run.resume).expanduser().is_dir():
            yield Problem("run.resume", config.run.resume, fix)


def _rank_problems(size: int, world_size: int) -> Iterator[Problem]:
    if size >= 1 and world_size % size:
        fits = [str(divisor) for divisor in range(1, world_size + 1) if world_size % divisor == 0]
        ranks = f"{world_size} rank" if world_size == 1 else f"{world_size} ranks"
        fix = f"must divide the {ranks} of this job: choose {' or '.join(fits)}, or start a multiple of {size} ranks"
        yield Problem("context_parallel.size", size, fix)


def _policy_problems(options: ContextParallelConfig) -> Iterator[Problem]:
    if options.exchange in ("ulysses", "ring_flash_attn") and options.policy not in ("auto", "contiguous"):
        fix = f"context_parallel.exchange={options.exchange} needs contiguous (or auto)"
        yield Problem("context_parallel.policy", options.policy, fix)


def _batch_problems(config: TrainConfig, world_size: int) -> Iterator[Problem]:
    """The global batch must be a whole number of micro-batches on every data-parallel rank."""
    size, training = config.context_parallel.size, config.training
    counts = (size, training.windows_per_step, training.micro_batch_windows)
    if MISSING in counts or min(counts) < 1 or world_size % size:
        return
    replicas = world_size // size
    at_once = replicas * training.micro_batch_windows
    if training.windows_per_step % at_once:
        fix = (
            f"must be a multiple of {at_once} = {replicas} data-parallel ranks "
            f"({world_size} ranks / context_parallel.size={size}) x training.micro_batch_windows="
            f"{training.micro_batch_windows}"
        )
        yield Problem("training.windows_per_step", training.windows_per_step, fix)


def _deepspeed_problems(config: TrainConfig, has_gpu: Callable[[], bool]) -> Iterator[Problem]:
    deepspeed = config.deepspeed
    if config.training.precision == "bf16" and deepspeed.zero_stage == 0:
        fix = "bf16 needs stage 1, 2 or 3 (stage 0 has no float32 accumulation); or training.precision=float32"
        yield Problem("deepspeed.zero_stage", 0, fix)
    if deepspeed.offload_parameters == "cpu" and deepspeed.zero_stage != 3:
        fix = f"needs deepspeed.zero_stage=3, here {deepspeed.zero_stage}; or none"
        yield Problem("deepspeed.offload_parameters", "cpu", fix)
    if deepspeed.offload_optimizer == "cpu" and deepspeed.zero_stage == 0:
        yield Problem("deepspeed.offload_optimizer", "cpu", "needs deepspeed.zero_stage 1, 2 or 3; or none")
    offloads = [key for key in ("offload_optimizer", "offload_parameters") if getattr(deepspeed, key) == "cpu"]
    if offloads and not has_gpu():
        for key in offloads:
            yield Problem(f"deepspeed.{key}", "cpu", "there is no GPU here to offload from: use none")


def _kernel_problems(kernel: str, precision: str, has_gpu: Callable[[], bool], trains: bool) -> Iterator[Problem]:
    """A kernel that the device, or the precision, does not have."""
    is_flash = kernel.startswith("flash")
    if (is_flash or (kernel == "flex" and trains)) and not has_gpu():
        yield Problem("attention.kernel", kernel, "needs a GPU, and there is none here: choose auto or cpu")
    if kernel == "cpu" and has_gpu():
        yield Problem("attention.kernel", kernel, "computes on the CPU alone, and there is a GPU here: choose auto")
    if is_flash and precision == "float32":
        yield Problem("attention.kernel", kernel, "computes in bf16 alone: choose auto or flex, or precision bf16")


def _optim_problems(config: TrainConfig) -> Iterator[Problem]:
    betas = config.optim.betas
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        yield Problem("optim.betas", betas, "must be two numbers, each at least 0 and less than 1, such as [0.9,0.95]")
    steps, warmup = config.training.steps, config.optim.warmup_steps
    if steps != MISSING and RANGES["training.steps"].admits(steps) and warmup >= steps:
        yield Problem("optim.warmup_steps", warmup, f"must be less than training.steps={steps}")


def _evaluate_problems(config: EvaluateConfig, world_size: int, has_gpu: Callable[[], bool]) -> Iterator[Problem]:
    if not config.models:
        yield Problem("models", "{}", "nothing to evaluate: give '+models.NAME=CHECKPOINT'")
    for name, path in config.models.items():
        yield from model_problems(f"models.{name}", path)
        yield from weights_problems(f"models.{name}", path)
    yield from index_problems(config.data)
    yield from _rank_problems(config.context_parallel.size, world_size)
    yield from _policy_problems(config.context_parallel)
    yield from _kernel_problems(config.attention.kernel, config.precision, has_gpu, trains=False)
    buckets = config.buckets
    if any(edge < 1 for edge in buckets) or sorted(set(buckets)) != buckets:
        yield Problem("buckets", buckets, "must be upper edges that grow, from 1 on, such as [1024,4096,16384]")


def _simulate_problems(config: SimulateConfig) -> Iterator[Problem]:
    if config.data.index != MISSING:
        yield from index_problems(config.data)
    elif not config.mixes:
        yield Problem("mixes", "[]", "nothing to simulate: name mixes, such as [web,8K], or give data.index=FOLDER")
    for key in ("ranks", "policies", "exchanges"):
        if not getattr(config, key):
            yield Problem(key, "[]", "nothing to simulate: give at least one")
    if config.windows == 0 and config.mixes:
        yield Problem("windows", 0, "give at least 1; all of data.index with 'mixes=[]'")
    if any(ranks < 1 for ranks in config.ranks):
        yield Problem("ranks", config.ranks, "a window is shared by at least 1 rank")


def _report_problems(config: ReportConfig) -> Iterator[Problem]:
    parts = {
        "runs": config.runs,
        "evaluations": config.evaluations,
        "indexes": config.indexes,
        "pictures": config.pictures,
    }
    if not any(parts.values()):
        yield Problem("runs", "{}", "nothing to report: give '+runs.NAME=FOLDER', '+evaluations.NAME=FOLDER' or others")
    for part, entries in parts.items():
        for name, path in entries.items():
            if path != MISSING and not Path(path).expanduser().exists():
                yield Problem(f"{part}.{name}", path, "not found: give what an earlier command wrote")


def balance_problems(balance: BalanceConfig) -> Iterator[Problem]:
    """Ranks that cannot share a step or a window."""
    ranks, windows = balance.data_ranks, balance.windows_per_step
    if ranks is not None and ranks >= 1 and windows % ranks:
        fix = f"must divide balance.windows_per_step={windows}: every rank takes as many windows"
        yield Problem("balance.data_ranks", ranks, fix)
    if any(count < 1 for count in balance.context_ranks):
        yield Problem("balance.context_ranks", balance.context_ranks, "a window is shared by at least 1 rank")


def _suffix_problems(key: str, path: str | None, suffixes: tuple[str, ...]) -> Iterator[Problem]:
    if path is not None and Path(path).suffix not in suffixes:
        yield Problem(key, path, f"must end in one of {', '.join(suffixes)}")
