"""The check of a whole config, before any process group or GPU work: every problem, not the first.

Pure but for looking at files the config names. What cannot be known yet (a hub name, what is inside
a model) is left to run time. The rules are beside the fields: see `groups/` and `schema/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anchorcontext.config.fields import field_problems, nested_problems
from anchorcontext.config.rules import Job
from anchorcontext.errors import Problem
from anchorcontext.machine import uses_gpu


def problems(config: Any, *, world_size: int = 1, has_gpu: Callable[[], bool] = uses_gpu) -> list[Problem]:
    """Everything wrong with a config.

    Args:
        config: an instance of one of `SCHEMAS`; missing values are `???`.
        world_size: ranks of the job.
        has_gpu: asked only where the answer matters.
    """
    if found := list(nested_problems(config)):
        return found  # the other rules take the types for granted
    return [*field_problems(config), *config.problems(Job(world_size, has_gpu))]
