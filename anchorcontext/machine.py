"""What this process may use of the machine: one answer for the config check, the ranks and the engine."""

from __future__ import annotations

import os

from anchorcontext.errors import ConfigError


def uses_gpu() -> bool:
    """Whether to compute on a GPU: one is there, and DS_ACCELERATOR=cpu does not keep DeepSpeed off it."""
    if os.environ.get("DS_ACCELERATOR") == "cpu":
        return False
    import torch  # costs a second: not for commands that never ask

    return torch.cuda.is_available()


def usable_cores() -> int:
    """Cores this process may use, which in a container or a job are often fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):  # not everywhere
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def launched_with(name: str, default: int, least: int = 0) -> int:
    """A number that a launcher or a user put into the environment, such as RANK; `default` where it is unset.

    Raises:
        ConfigError: not a whole number, or less than `least`.
    """
    value = os.environ.get(name) or str(default)
    if not value.isdecimal() or int(value) < least:
        raise ConfigError.of(f"the environment's {name}", value, f"must be a whole number, at least {least}; or unset")
    return int(value)
