"""The trained model in Hugging Face format."""

from __future__ import annotations

from anchorcontext.train.checkpoint import TrainState
from anchorcontext.train.setup import Run


def export(run: Run, state: TrainState) -> None:
    """Not written yet."""
