"""Config of `anchorcontext pack`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from anchorcontext.config.groups.balance import BalanceConfig
from anchorcontext.config.groups.data import DataConfig
from anchorcontext.config.rules import Command, Job, number
from anchorcontext.errors import Problem
from data_prep.errors import DataError
from data_prep.read import parse_limit


@dataclass
class PackConfig(Command):
    """Config of `anchorcontext pack`."""

    data: DataConfig = field(default_factory=DataConfig)
    balance: BalanceConfig = field(default_factory=BalanceConfig)
    workers: int = number(0, 0, 2**31 - 1)
    """Tokenizing processes; 0 takes one per core."""
    limit: str | None = None
    """Pack a sample of every source, into folders of its own: a share (`1%`), bytes in storage (`500MB`) or
    records (`10000_records`). Null: everything."""
    page: bool = True
    """Write the index's report, a page with plots, beside it (`report.html`)."""
    overwrite: bool = False
    """Replace an index that was packed with other options, and token stores made from other files or options."""

    def problems(self, job: Job) -> Iterator[Problem]:
        yield from self.data.pack_problems()
        if self.limit is not None:
            try:
                parse_limit(self.limit)
            except DataError as error:
                yield Problem("limit", self.limit, str(error).partition(": ")[2])
        yield from self.balance.problems()
