"""Training on the DeepSpeed engine: `train(TrainConfig(...))`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorcontext.train.loop import train

__all__ = ["train"]


def __getattr__(name: str) -> Any:
    if name == "train":
        from anchorcontext.train.loop import train  # DeepSpeed costs seconds

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
