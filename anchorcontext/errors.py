"""What a user can fix: everything wrong with a config in one error, and what ended a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a config: its key, its value and how to fix it."""

    key: str
    value: object
    fix: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}: {self.fix}"


class ConfigError(ValueError):
    """Every problem of a config at once, so that a user can fix them in one go."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        heading = "1 problem in the config" if count == 1 else f"{count} problems in the config"
        super().__init__("\n".join([f"{heading}:", *(f"  - {problem}" for problem in self.problems)]))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[Problem, ...]]]:
        """Pickled by its problems: ranks send errors to each other."""
        return type(self), (self.problems,)

    @classmethod
    def of(cls, key: str, value: object, fix: str) -> ConfigError:
        """The error of one problem."""
        return cls([Problem(key, value, fix)])


class RunError(RuntimeError):
    """What ends a run that has begun and is no bug: the message names it, where it happened and how to go on."""
