"""Group `logger`: trackers beside metrics.jsonl."""

from __future__ import annotations

from dataclasses import dataclass

from anchorcontext.config.rules import one_of


@dataclass
class LoggerConfig:
    """Trackers in addition to metrics.jsonl."""

    name: str = one_of(("none", "wandb"), "none")
    """`none`, or `wandb` for Weights & Biases (offline unless logged in)."""
    project: str = "anchorcontext"
    """Project of the tracker that the run is shown in."""
