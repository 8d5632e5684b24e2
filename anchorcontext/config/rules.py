"""What a field of the schema takes, stated beside the field, and what a command adds to its fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from anchorcontext.config.folder import all_groups
from anchorcontext.errors import Problem


@dataclass(frozen=True)
class Range:
    """The numbers a field takes: from `low` (itself excluded if `open_low`) to `high` likewise."""

    low: float
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def admits(self, value: float) -> bool:
        """Whether `value` is finite and lies in the range."""
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below and abs(value) < math.inf

    def __str__(self) -> str:
        low = f"more than {self.low:g}" if self.open_low else f"at least {self.low:g}"
        if self.high == math.inf:
            return low
        return f"{low} and {'less than' if self.open_high else 'at most'} {self.high:,}"


def one_of(words: Sequence[str], default: str) -> Any:
    """A text field that takes one of `words`."""
    return field(default=default, metadata={"words": tuple(words)})


def items_from(words: Sequence[str]) -> dict[str, Any]:
    """The metadata of a list field whose items are among `words`."""
    return {"words": tuple(words)}


def number(default: Any, low: float, high: float = math.inf, *, open_low: bool = False, open_high: bool = False) -> Any:
    """A number field with a range; `???` as default makes it mandatory, None makes null its default."""
    return field(default=default, metadata={"range": Range(low, high, open_low, open_high)})


@dataclass(frozen=True)
class Job:
    """What a check knows of the job besides its config.

    Attributes:
        world_size: ranks of the job.
        has_gpu: asked only where the answer matters.
    """

    world_size: int
    has_gpu: Callable[[], bool]


class Command:
    """Base of a command's config: fields come from the dataclass, rules across fields from `problems`."""

    unread: ClassVar[frozenset[str]] = frozenset()
    """Keys of shared groups that this command does not read, so that they need not be given."""

    def problems(self, job: Job) -> Iterator[Problem]:
        """What is wrong beyond single fields: files that are missing, values that contradict each other."""
        yield from ()


def how_to_give(key: str) -> str:
    """What to type for a mandatory key that is missing."""
    group = key.partition(".")[0]
    by_group = f", or choose a file of the group: {group}=NAME" if group in all_groups() else ""
    return f"must be given: {key}=VALUE{by_group}"
