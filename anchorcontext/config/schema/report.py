"""Config of `anchorcontext report`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

from anchorcontext.config.rules import Command, Job
from anchorcontext.errors import Problem


@dataclass
class ReportConfig(Command):
    """Config of `anchorcontext report`."""

    title: str = "AnchorContext"
    """Title of the page."""
    runs: dict[str, str] = field(default_factory=dict)
    """Run folders by name: their loss curves."""
    evaluations: dict[str, str] = field(default_factory=dict)
    """Output folders of `evaluate` by name: loss by position."""
    indexes: dict[str, str] = field(default_factory=dict)
    """Pack indexes by name: their packing figures."""
    pictures: dict[str, str] = field(default_factory=dict)
    """More images by caption, such as the mask that `inspect` draws."""
    output: str = MISSING
    """Folder for index.html."""

    def problems(self, job: Job) -> Iterator[Problem]:
        parts = {name: getattr(self, name) for name in ("runs", "evaluations", "indexes", "pictures")}
        if not any(parts.values()):
            fix = "nothing to report: give '+runs.NAME=FOLDER', '+evaluations.NAME=FOLDER' or others"
            yield Problem("runs", "{}", fix)
        for part, entries in parts.items():
            for name, path in entries.items():
                if path != MISSING and not Path(path).expanduser().exists():
                    yield Problem(f"{part}.{name}", path, "not found: give what an earlier command wrote")
