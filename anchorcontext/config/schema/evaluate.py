"""Config of `anchorcontext evaluate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from omegaconf import MISSING

from anchorcontext.config.files import index_problems, model_problems, weights_problems
from anchorcontext.config.groups.attention import AttentionConfig
from anchorcontext.config.groups.context_parallel import ContextParallelConfig
from anchorcontext.config.groups.data import DataConfig
from anchorcontext.config.rules import Command, Job, number, one_of
from anchorcontext.errors import Problem


@dataclass
class EvaluateConfig(Command):
    """Config of `anchorcontext evaluate`."""

    unread = frozenset({"data.sources", "data.store", "data.tokenizer", "data.window_tokens"})

    models: dict[str, str] = field(default_factory=dict)
    """Checkpoints in Hugging Face format, by the name they have in the results."""
    data: DataConfig = field(default_factory=DataConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    context_parallel: ContextParallelConfig = field(default_factory=ContextParallelConfig)
    split: str = one_of(("train", "held_out"), "held_out")
    """Split of `data.index`: `train` or `held_out`."""
    windows: int = number(16, 0)
    """Windows to evaluate, from the start of the split; 0 takes all."""
    buckets: list[int] = field(default_factory=list)
    """Upper edges of the position buckets, in rows, ascending. Empty: powers of two up to the window."""
    precision: str = one_of(("float32", "bf16"), "float32")
    """Dtype of weights and activations: `float32` or `bf16`."""
    loss_chunk_rows: int = number(1024, 1)
    """Rows whose logits exist at one time."""
    output: str = MISSING
    """Folder for the JSONL, the CSV and the plot."""

    def problems(self, job: Job) -> Iterator[Problem]:
        if not self.models:
            yield Problem("models", "{}", "nothing to evaluate: give '+models.NAME=CHECKPOINT'")
        for name, path in self.models.items():
            yield from model_problems(f"models.{name}", path)
            yield from weights_problems(f"models.{name}", path)
        yield from index_problems(self.data)
        yield from self.context_parallel.problems(job.world_size)
        yield from self.attention.problems(self.precision, job.has_gpu, trains=False)
        if any(edge < 1 for edge in self.buckets) or sorted(set(self.buckets)) != self.buckets:
            fix = "must be ascending upper edges, each at least 1, such as [1024,4096,16384]"
            yield Problem("buckets", self.buckets, fix)
