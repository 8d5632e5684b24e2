"""What packing writes, kept apart from what it reads."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from data_prep.errors import DataError
from data_prep.read.source import Source


def check_apart(source: Source, folder: Path, what: str, names: Iterable[str]) -> None:
    """Refuse a source that would read files which packing writes as documents the next time.

    Args:
        folder: where they are written; `what` is there, in words.
        names: of such files.

    Raises:
        DataError: the folder lies inside the source's, whose pattern takes one of the names.
    """
    inside = folder.resolve().is_relative_to(Path(source.path).expanduser().resolve())
    if inside and any(fnmatch(name, source.pattern) for name in names):
        raise DataError(f"source {source.name}: {what} {folder} lies inside {source.path}: put it elsewhere")
