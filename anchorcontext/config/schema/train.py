"""Config of `anchorcontext train`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from omegaconf import MISSING

from anchorcontext.config.files import index_problems
from anchorcontext.config.groups.attention import AttentionConfig
from anchorcontext.config.groups.context_parallel import ContextParallelConfig
from anchorcontext.config.groups.data import DataConfig
from anchorcontext.config.groups.deepspeed import DeepSpeedConfig
from anchorcontext.config.groups.logger import LoggerConfig
from anchorcontext.config.groups.model import ModelConfig
from anchorcontext.config.groups.optim import OptimConfig
from anchorcontext.config.groups.rope import RopeConfig
from anchorcontext.config.groups.training import OrderConfig, RunConfig, TrainingConfig
from anchorcontext.config.rules import Command, Job
from anchorcontext.errors import Problem


@dataclass
class TrainConfig(Command):
    """Config of `anchorcontext train`."""

    unread = frozenset({"data.sources", "data.store", "data.tokenizer"})

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    order: OrderConfig = field(default_factory=OrderConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    rope: RopeConfig = field(default_factory=RopeConfig)
    context_parallel: ContextParallelConfig = field(default_factory=ContextParallelConfig)
    deepspeed: DeepSpeedConfig = field(default_factory=DeepSpeedConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def problems(self, job: Job) -> Iterator[Problem]:
        yield from self.model.problems()
        yield from index_problems(self.data)
        yield from self.context_parallel.problems(job.world_size)
        yield from self._batch_problems(job.world_size)
        yield from self.deepspeed.problems(self.training.precision, job.has_gpu)
        yield from self.attention.problems(self.training.precision, job.has_gpu, trains=True)
        if self.context_parallel.exchange == "ring_flash_attn" and self.context_parallel.size > 1 and not job.has_gpu():
            fix = "needs a GPU, and there is none here: choose gather or ring"
            yield Problem("context_parallel.exchange", "ring_flash_attn", fix)
        yield from self.optim.problems()
        steps, warmup = self.training.steps, self.optim.warmup_steps
        if steps != MISSING and 1 <= steps <= warmup:
            yield Problem("optim.warmup_steps", warmup, f"must be less than training.steps={steps}")
        yield from self.training.problems()
        yield from self.run.problems()

    def _batch_problems(self, world_size: int) -> Iterator[Problem]:
        """The global batch must be a whole number of micro-batches on every data-parallel rank."""
        size, training = self.context_parallel.size, self.training
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
