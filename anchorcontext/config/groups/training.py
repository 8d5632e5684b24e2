"""Sections `training`, `order` and `run`: how long, in which order, and where a run is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from omegaconf import MISSING

from anchorcontext.config.rules import number, one_of
from anchorcontext.errors import Problem


@dataclass
class OrderConfig:
    """The order in which training takes windows."""

    balance_steps: int = number(16, 0)
    """Steps per block. The windows of a block are sorted by attention work and divided into its steps anew, so
    that the data-parallel ranks of a step do similar work. 0: the plain permutation. The price: the windows of
    one step hold documents of similar lengths, though every block keeps the mixture."""


@dataclass
class TrainingConfig:
    """How long and how to train."""

    steps: int = number(MISSING, 1)
    """Optimizer steps of the whole run, resumed parts included."""
    windows_per_step: int = number(MISSING, 1)
    """Global batch, in windows."""
    micro_batch_windows: int = number(1, 1)
    """Windows that a data-parallel rank computes at once, concatenated into one row."""
    precision: str = one_of(("bf16", "float32"), "bf16")
    """`bf16` (with float32 master weights, accumulation and reduction) or `float32`."""
    gradient_checkpointing: bool = True
    """Recompute each layer's activations in the backward pass instead of keeping them."""
    keep_attention: bool = False
    """Keep each layer's attention output and logsumexp, so that recomputing a layer repeats neither
    attention nor exchange; needs gradient_checkpointing. Takes as much memory as the layer inputs
    that are kept anyway, for models whose heads together are as wide as the model."""
    loss_chunk_rows: int = number(1024, 1)
    """Rows whose logits exist at one time."""
    seed: int = number(0, 0, 2**32 - 1)
    """Seed of the data order and of random weights."""
    save_every_steps: int = number(0, 0)
    """Optimizer steps between checkpoints; 0 saves only the last."""
    keep_checkpoints: int = number(2, 1)
    """Number of checkpoints to keep, the newest; an older one is deleted once a newer one is committed."""
    log_every_steps: int = number(1, 1)
    """Optimizer steps between lines of metrics."""

    def problems(self) -> Iterator[Problem]:
        """Options that have no effect."""
        if self.keep_attention and not self.gradient_checkpointing:
            fix = "has no effect when nothing is recomputed: set training.gradient_checkpointing=true, or leave it out"
            yield Problem("training.keep_attention", True, fix)


@dataclass
class RunConfig:
    """Where a run is kept: the same on every rank, never named after the time."""

    name: str = MISSING
    """Name of the run, in its folder's path and in trackers."""
    folder: str = "runs/${run.name}"
    """Folder of checkpoints, metrics and the resolved config."""
    resume: str = "auto"
    """`auto` continues from the newest checkpoint in the folder, or starts where there is none;
    `never` refuses a folder that holds a run; otherwise the path of a checkpoint to continue from."""

    def problems(self) -> Iterator[Problem]:
        """A checkpoint to resume from that is not there."""
        if self.resume not in ("auto", "never") and not Path(self.resume).expanduser().is_dir():
            fix = "no checkpoint there: give auto, never, or the path of a checkpoint folder"
            yield Problem("run.resume", self.resume, fix)
