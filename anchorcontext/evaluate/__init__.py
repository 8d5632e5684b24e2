"""Evaluation of checkpoints with the masks, positions and kernels of training.

`losses` runs a model over packed windows on any number of ranks. Each evaluation is a module beside
it that says what is made of the losses: `positions` for loss by position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorcontext.evaluate.positions import evaluate_positions

__all__ = ["evaluate_positions"]


def __getattr__(name: str) -> Any:
    if name == "evaluate_positions":
        from anchorcontext.evaluate.positions import evaluate_positions  # transformers costs seconds

        return evaluate_positions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
