"""What a report is made of, read from the folders that earlier commands wrote.

Raises, throughout: ConfigError naming the key and what should be there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anchorcontext.config.schema import BalanceConfig
from anchorcontext.data.statistics import index_report, stored_report
from anchorcontext.errors import ConfigError
from anchorcontext.plots import PositionLoss, read_positions
from data_prep.errors import DataError

IMAGE_TYPES = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}

_MEASURED = ("step", "tokens", "loss", "step_seconds", "tokens_per_second", "peak_memory_gib")
"""What each logged step must hold to be shown."""


@dataclass(frozen=True)
class Evaluation:
    """An output folder of `evaluate`: what was evaluated, and losses by position of each model."""

    settings: dict[str, Any]
    models: dict[str, list[PositionLoss]]


def read_run(name: str, folder: str) -> list[dict[str, Any]]:
    """The logged steps of a run, in order."""
    path = _file(f"runs.{name}", folder, "metrics.jsonl", "a run folder of `anchorcontext train`")
    steps = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        try:
            step = json.loads(line)
            if absent := [key for key in _MEASURED if not isinstance(step[key], int | float)]:
                raise TypeError(f"no number in {', '.join(absent)}")
        except (ValueError, LookupError, TypeError) as error:
            fix = "is no logged step: a run that was killed mends it when it goes on; else delete the line"
            raise ConfigError.of(f"runs.{name}", folder, f"metrics.jsonl, line {number} {fix}") from error
        steps.append(step)
    if not steps:
        raise ConfigError.of(f"runs.{name}", folder, "its metrics.jsonl has no step yet: train first")
    return steps


def read_evaluation(name: str, folder: str) -> Evaluation:
    """What `evaluate` wrote."""
    key, wanted = f"evaluations.{name}", "an output folder of `anchorcontext evaluate`"
    table, settings = (_file(key, folder, file, wanted) for file in ("by_position.csv", "evaluation.json"))
    try:
        evaluation = Evaluation(json.loads(settings.read_text(encoding="utf-8")), read_positions(table))
        if absent := {"windows", "split", "window_tokens", "arm"}.difference(evaluation.settings):
            raise ValueError(f"{settings} lacks {', '.join(sorted(absent))}: evaluate again")
        return evaluation
    except (ValueError, TypeError) as error:
        raise ConfigError.of(key, folder, str(error)) from error


def read_index(name: str, folder: str) -> dict[str, Any]:
    """The report of a pack index: the one that `pack` left there, or made anew."""
    try:
        return stored_report(folder) or index_report(folder, BalanceConfig())
    except DataError as error:
        raise ConfigError.of(f"indexes.{name}", folder, str(error)) from error


def read_picture(caption: str, path: str) -> tuple[str, bytes]:
    """The media type and the bytes of an image."""
    file = Path(path).expanduser()
    if file.suffix not in IMAGE_TYPES or not file.is_file():
        raise ConfigError.of(f"pictures.{caption}", path, f"must be a file that ends in {', '.join(IMAGE_TYPES)}")
    return IMAGE_TYPES[file.suffix], file.read_bytes()


def _file(key: str, folder: str, name: str, wanted: str) -> Path:
    path = Path(folder).expanduser() / name
    if not path.is_file():
        raise ConfigError.of(key, folder, f"has no {name}: give {wanted}")
    return path


def run_facts(steps: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """What a table says of a run: names and values."""
    last = steps[-1]
    seconds = sum(step["step_seconds"] for step in steps)
    yield "steps", f"{last['step']:,}"
    yield "tokens", f"{last['tokens']:,}"
    yield "last loss (nats)", f"{last['loss']:.3f}"
    yield "tokens/s", f"{np.median([step['tokens_per_second'] for step in steps]):,.0f}"
    yield "time in steps", f"{seconds:,.0f} s" if seconds < 3600 else f"{seconds / 3600:,.1f} h"
    yield "peak memory", f"{max(step['peak_memory_gib'] for step in steps):.2f} GiB"
