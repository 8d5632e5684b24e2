"""The folder of the YAML files: where it is, which groups it holds, which of them a command takes."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml


def config_folder() -> Path:
    """The folder of the YAML files: `_configs` in an installed package, `configs` in a checkout."""
    installed = Path(__file__).resolve().parents[1] / "_configs"
    return installed if installed.is_dir() else Path(__file__).resolve().parents[2] / "configs"


@functools.cache
def all_groups() -> tuple[str, ...]:
    """Every config group: the sub-folders that hold YAML."""
    return tuple(sorted({path.parent.name for path in config_folder().glob("*/*.yaml")}))


def group_files(group: str) -> list[str]:
    """The names that `group=NAME` takes from the shipped configs."""
    return sorted(path.stem for path in (config_folder() / group).glob("*.yaml"))


def groups_of(command: str) -> list[str]:
    """The config groups that a command takes, by the defaults of its YAML."""
    return [name for entry in _command_yaml(command)["defaults"] if isinstance(entry, dict) for name in entry]


def header_of(command: str) -> str:
    """What a command does, in one line: the `hydra.help.header` of its YAML."""
    return str(_command_yaml(command)["hydra"]["help"]["header"])


def _command_yaml(command: str) -> dict[str, Any]:
    return yaml.safe_load((config_folder() / f"{command}.yaml").read_text(encoding="utf-8"))
