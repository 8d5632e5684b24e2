"""What a run measures at each step, and the places that keep it: metrics.jsonl, and a tracker on request."""

from __future__ import annotations

import json
import os
import resource
import secrets
import sys
from pathlib import Path
from typing import Any

import torch

from anchorcontext.config.schema import LoggerConfig
from anchorcontext.errors import RunError
from data_prep.disk import write_file

Metrics = dict[str, float]
"""Of one step: `step`, `loss` (nats), `grad_norm` (before clipping), `learning_rate`, `tokens` (since the
run began), `valid_labels` (of the step), `step_seconds`, `tokens_per_second` (all ranks),
`peak_memory_gib` (largest rank), `epoch`, `windows_consumed`."""


class MetricsFile:
    """metrics.jsonl: one JSON object a logged step, flushed.

    Lines after `done_steps` were measured by steps that are not in the checkpoint the run goes on
    from, so they go: an interrupted run's file ends up the same as an uninterrupted one's.
    """

    def __init__(self, path: Path, done_steps: int) -> None:
        if path.exists():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            kept = [line for line in lines if _step_of(line) <= done_steps]
            write_file(path, "".join(f"{line}\n" for line in kept).encode())
        self._file = path.open("a", encoding="utf-8")

    def write(self, metrics: Metrics) -> None:
        self._file.write(json.dumps(metrics) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class WandbTracker:
    """Metrics in Weights & Biases; a resumed run goes on as the same one, whose id is in the run folder.

    Offline unless logged in; WANDB_MODE decides where it is set.

    Raises:
        RunError: Weights & Biases cannot be reached, or not with these settings; before the first step.
    """

    def __init__(self, config: LoggerConfig, run_name: str, folder: Path, settings: dict[str, Any]) -> None:
        import wandb

        mode: Any = None if os.environ.get("WANDB_MODE") else "online" if wandb.api.api_key else "offline"
        try:
            self._run = wandb.init(
                project=config.project,
                name=run_name,
                id=_wandb_id(folder),
                resume="allow",
                dir=folder,
                mode=mode,
                config=settings,
            )
        except Exception as error:  # what wandb and its settings raise has no common type
            way_out = "set WANDB_MODE=offline and send the run later with `wandb sync`, or choose logger=none"
            raise RunError(f"logger=wandb cannot begin ({type(error).__name__}: {error}): {way_out}") from error

    def write(self, metrics: Metrics) -> None:
        self._run.log({name: value for name, value in metrics.items() if name != "step"}, step=int(metrics["step"]))

    def close(self) -> None:
        self._run.finish()


def peak_memory_gib(device: torch.device) -> float:
    """Most memory this rank has used so far: of its GPU, or resident on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kib / (2**30 if sys.platform == "darwin" else 2**20)


def _wandb_id(folder: Path) -> str:
    """The run's id, drawn once: a folder that is moved stays the run, another of its name is another."""
    path = folder / "wandb_id"
    if not path.exists():
        write_file(path, secrets.token_hex(8).encode())
    return path.read_text().strip()


def _step_of(line: str) -> float:
    """The step of a line; a half-written one counts as beyond every step."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return float("inf")
