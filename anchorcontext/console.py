"""Where commands print tables."""

from __future__ import annotations

from rich.console import Console

_WIDTH_WITHOUT_TERMINAL = 140


def table_console() -> Console:
    """A console on standard output; in a file or a pipe, wide enough that no table is cut."""
    console = Console(highlight=False)
    if not console.is_terminal and console.width < _WIDTH_WITHOUT_TERMINAL:
        console = Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    return console


def counted(number: int, noun: str) -> str:
    """`1 piece`, `1,024 pieces`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
