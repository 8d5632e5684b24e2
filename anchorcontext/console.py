"""How commands show tables and progress."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

_WIDTH_WITHOUT_TERMINAL = 140
_WIDEST_COLUMN = 60


def table_console() -> Console:
    """A console on standard output; in a file or a pipe, wide enough that no figure of a table is cut.

    Names of sources and paths are shown as they are: `[/x]` is no markup and `:x:` no emoji.
    """
    console = plain_console()
    if not console.is_terminal and console.width < _WIDTH_WITHOUT_TERMINAL:
        console = plain_console(_WIDTH_WITHOUT_TERMINAL)
    return console


def plain_console(width: int | None = None) -> Console:
    """A console on standard output that shows every text as it is."""
    return Console(highlight=False, markup=False, emoji=False, width=width)


def plain_table(title: str, columns: Sequence[str], left: Collection[str] = ()) -> Table:
    """A table with a rule below its head. Columns are numbers, set to the right, but for those in `left`."""
    one_line = Text(title, no_wrap=True, overflow="ignore")  # not folded to the width of a narrow table
    table = Table(title=one_line, title_justify="left", caption_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    return table


@dataclass(frozen=True)
class Figures:
    """A table of texts, for a terminal and for a page alike.

    Attributes:
        left: columns of words; all others are numbers.
        lines: a text for each column.
    """

    title: str
    columns: tuple[str, ...]
    left: frozenset[str]
    lines: list[list[str]]

    def for_terminal(self) -> Table:
        """As rich shows it."""
        table = plain_table(self.title, self.columns, self.left)
        for column in table.columns:
            column.max_width = _WIDEST_COLUMN  # a long name leaves room for its figures
        for line in self.lines:
            table.add_row(*line)
        return table


def counted(number: int, noun: str) -> str:
    """`1 piece`, `1,024 pieces`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def progress_bar(*extra: ProgressColumn, counter: ProgressColumn | None = None, shown: bool = True) -> Progress:
    """A bar with steps done, time used and time left, on standard error; nothing where that is no terminal.

    Args:
        extra: columns behind the number of steps.
        counter: what shows the number of steps, where they are no plain count (default: done/total).
    """
    console = Console(file=sys.stderr)
    columns: tuple[ProgressColumn, ...] = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        counter or MofNCompleteColumn(),
        *extra,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not (shown and console.is_terminal))
