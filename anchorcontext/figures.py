"""Tables of texts, for a terminal and for a page alike."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figures:
    """A table of texts.

    Attributes:
        left: columns of words; all others are numbers.
        lines: one text per column.
    """

    title: str
    columns: tuple[str, ...]
    left: frozenset[str]
    lines: list[list[str]]


def counted(number: int, noun: str) -> str:
    """`1 piece`, `1,024 pieces`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
