"""train on packed windows, under torchrun or deepspeed for ranks."""

from __future__ import annotations

from anchorcontext.config.schema import TrainConfig
from anchorcontext.train.loop import train


def run(config: TrainConfig) -> None:
    """Train, and export the model.

    Raises:
        ConfigError, DataError: before the first step.
        RunError: what ends a run that has begun.
    """
    train(config)
