"""Config of `anchorcontext export_data`."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

from anchorcontext.config.files import index_problems
from anchorcontext.config.groups.data import DataConfig
from anchorcontext.config.rules import Command, Job, items_from, number
from anchorcontext.errors import Problem


@dataclass
class ExportDataConfig(Command):
    """Config of `anchorcontext export_data`."""

    unread = frozenset({"data.sources", "data.store", "data.tokenizer", "data.window_tokens"})

    data: DataConfig = field(default_factory=DataConfig)
    splits: list[str] = field(default_factory=list, metadata=items_from(("train", "held_out")))
    """Splits to export. Empty: those that have windows."""
    windows: int = number(0, 0)
    """Windows to export from the start of each split; 0 takes all."""
    file_tokens: int = number(33_554_432, 1)
    """Rows per file, at most, over all its windows (but at least one window); as many token ids are held in
    memory."""
    overwrite: bool = False
    """Replace an earlier export in the folder."""
    output: str = MISSING
    """Folder of the dataset."""

    def problems(self, job: Job) -> Iterator[Problem]:
        yield from index_problems(self.data)
        output = Path(self.output).expanduser().resolve()
        if self.output != MISSING and glob.has_magic(str(output)):
            fix = f"datasets.load_dataset would read {output} as a pattern: choose a folder without *, ? and ["
            yield Problem("output", self.output, fix)
