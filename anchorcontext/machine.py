"""What this process may use of the machine: one answer for the config check, the ranks and the engine."""

from __future__ import annotations

import os


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
