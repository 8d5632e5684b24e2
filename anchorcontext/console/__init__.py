"""How commands show tables and progress in a terminal; the library does not import it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from anchorcontext.figures import Figures

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


def figures_table(figures: Figures) -> Table:
    """A table of the library, as rich shows it."""
    table = plain_table(figures.title, figures.columns, figures.left)
    for column in table.columns:
        column.max_width = _WIDEST_COLUMN  # a long name leaves room for its figures
    for line in figures.lines:
        table.add_row(*line)
    return table


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


class Bars:
    """Bars for a function of the library that takes `on_progress`; they appear at its first call.

    Args:
        counter: what shows done and total, where they are no plain counts.
        one: a single bar for everything, described by what is being done now; otherwise one bar for
            each thing that is being done.
    """

    def __init__(self, counter: ProgressColumn | None = None, *, one: bool = False) -> None:
        self._progress = progress_bar(counter=counter)
        self._tasks: dict[str, TaskID] = {}
        self._one = one

    def __enter__(self) -> Bars:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the bars as they are."""
        if self._tasks:
            self._progress.stop()

    def then(self, stage: Callable[[str], AbstractContextManager[Any]]) -> Callable[[str], AbstractContextManager[Any]]:
        """`stage`, which shows something of its own, with the bars stopped first."""

        def stopped(name: str) -> AbstractContextManager[Any]:
            self.stop()
            return stage(name)

        return stopped

    def __call__(self, what: str, done: int, total: int) -> None:
        """See `anchorcontext.progress.OnProgress`."""
        key = "" if self._one else what
        if not self._tasks:
            self._progress.start()
        if key not in self._tasks:
            self._tasks[key] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[key], description=what, completed=done, total=total)
