"""The folder of a run: what it was, what it measured, what it saved.

Its place is the config's alone. Rank 0 makes and writes it:
`config.yaml` (resolved), `overrides.yaml`, `environment.json`, `metrics.jsonl`, `checkpoints/`, `hf/`.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import yaml

from anchorcontext.config.app import overrides, resolved_yaml
from anchorcontext.config.schema import TrainConfig
from anchorcontext.errors import ConfigError, Problem
from anchorcontext.train.ranks import Ranks
from data_prep.disk import only_writer, remove_partial, write_file, write_json

TEMPORARY_PREFIX = ".tmp-"
"""Of folders that are not complete yet."""

_FIXED_KEYS = (
    "attention.arm",
    "data.end_of_document",
    "data.window_tokens",
    "deepspeed.zero_stage",
    "model.init",
    "model.path",
    "order.balance_steps",
    "rope.base",
    "rope.compute",
    "training.precision",
    "training.seed",
    "training.windows_per_step",
)
"""Keys that make a run what it is: changed, it would be another run under the same name."""

_FREE_SECTIONS = ("logger.", "run.", "data.sources", "training.save_every_steps", "training.keep_checkpoints")
_FREE_KEYS = ("training.steps", "training.log_every_steps")


class RunFolder:
    """Paths of a run."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder).expanduser()
        self.config = self.path / "config.yaml"
        self.overrides = self.path / "overrides.yaml"
        self.environment = self.path / "environment.json"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.exports = self.path / "hf"

    @contextmanager
    def hold(self, ranks: Ranks) -> Iterator[None]:
        """Keep other jobs out: ranks outlive a launcher that is killed, and would write here too.

        Raises:
            DataError: another job trains here; on every rank.
        """
        with ExitStack() as stack:
            ranks.on_main(lambda: stack.enter_context(only_writer(self.path)))
            yield

    def check(self, config: TrainConfig, ranks: Ranks) -> list[str]:
        """Whether the config may begin a run here, or go on with the one that has begun; writes nothing.

        Returns:
            Warnings: keys that changed since the run began and change what it computes.

        Raises:
            ConfigError: it holds a run that must not be continued, or another one; on every rank.
        """
        return ranks.on_main(lambda: self._check(config))

    def begin(self, config: TrainConfig, ranks: Ranks) -> None:
        """Write down what the run is, once all is ready for its next step."""
        ranks.on_main(lambda: self._begin(config, ranks))

    def has_begun(self) -> bool:
        """Whether a step was logged or saved here; a start that failed before is no run."""
        logged = self.metrics.exists() and self.metrics.stat().st_size > 0
        return logged or bool(step_folders(self.checkpoints))

    def _check(self, config: TrainConfig) -> list[str]:
        if not self.has_begun():
            return []
        if config.run.resume == "never":
            fix = "holds a run already: choose another run.name, or run.resume=auto to go on with it"
            raise ConfigError.of("run.folder", self.path, fix)
        begun_anew = []
        if not step_folders(self.checkpoints):
            begun_anew = [f"{self.path} has logged steps and no checkpoint: the run begins anew, at step 1"]
        if not self.config.exists():
            return begun_anew
        problems, warnings = compare(self._config_before(), _flat(config))
        if problems:
            raise ConfigError(problems)
        return begun_anew + warnings

    def _config_before(self) -> dict[str, Any]:
        try:
            return flatten(yaml.safe_load(self.config.read_text()))
        except (yaml.YAMLError, UnicodeDecodeError, AttributeError):
            fix = "is no config (damaged?): delete this file; checkpoints hold what must stay the same"
            raise ConfigError.of("run.folder", self.config, fix) from None

    def _begin(self, config: TrainConfig, ranks: Ranks) -> None:
        for folder in (self.checkpoints, self.exports):
            folder.mkdir(parents=True, exist_ok=True)
            for half_written in folder.glob(f"{TEMPORARY_PREFIX}*"):
                shutil.rmtree(half_written)
        remove_partial(self.path)
        write_file(self.config, resolved_yaml(config).encode())
        write_file(self.overrides, yaml.safe_dump(overrides()).encode())
        write_json(self.environment, environment(ranks))


def fixed_settings(config: TrainConfig) -> dict[str, Any]:
    """What makes a run what it is, by config key; a checkpoint keeps it."""
    flat = _flat(config)
    return {key: flat[key] for key in _FIXED_KEYS}


def compare(before: dict[str, Any], now: dict[str, Any]) -> tuple[list[Problem], list[str]]:
    """What a changed config means for a run that has begun: refusals, and warnings.

    Both dictionaries are flat: `{"optim.lr": 1e-4}`.
    """
    problems, warnings = [], []
    for key in sorted(before.keys() | now.keys()):
        was, is_now = before.get(key), now.get(key)
        if key == "training.steps" and was != is_now and (schedule := now.get("optim.schedule")) != "constant":
            warnings.append(
                f"{key} was {was}, from here on it is {is_now}: the learning rate (optim.schedule={schedule}) "
                "follows the new length"
            )
        if was == is_now or key in _FREE_KEYS or key.startswith(_FREE_SECTIONS):
            continue
        if key in _FIXED_KEYS:
            fix = f"was {was} when the run began: set it back, or choose another run.name"
            problems.append(Problem(key, is_now, fix))
        else:
            warnings.append(f"{key} was {was}, from here on it is {is_now}")
    return problems, warnings


def _flat(config: TrainConfig) -> dict[str, Any]:
    return flatten(yaml.safe_load(resolved_yaml(config)))


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries as one, keys joined by dots."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def environment(ranks: Ranks) -> dict[str, Any]:
    """Versions, machine and ranks: what a result may depend on beside its config."""
    packages = ("anchorcontext", "torch", "transformers", "tokenizers", "deepspeed", "numpy", "safetensors")
    return {
        "command": sys.argv,
        "python": platform.python_version(),
        "versions": {name: package_version(name) for name in packages},
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(ranks.device) if ranks.device.type == "cuda" else "cpu",
        "world_size": ranks.world_size,
        "context_parallel_size": ranks.context_size,
        "threads_per_rank": ranks.threads,
        "threads_from": "OMP_NUM_THREADS" if os.environ.get("OMP_NUM_THREADS") else "cores / ranks of the node",
    }


def package_version(name: str) -> str:
    """Installed version; a checkout that is run without being installed has its own number."""
    if name == "anchorcontext":
        import anchorcontext

        return anchorcontext.__version__
    return version(name)


def step_name(step: int) -> str:
    """`step-000100`: sorts by step up to a million, and is read back by number beyond."""
    return f"step-{step:06d}"


def step_folders(folder: Path) -> list[tuple[int, Path]]:
    """Committed step folders in numeric order, oldest first."""
    found = []
    for path in folder.glob("step-*"):
        number = path.name.removeprefix("step-")
        if path.is_dir() and number.isdecimal():
            found.append((int(number), path))
    return sorted(found)
