"""What packing writes, kept apart from what it reads."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
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
        DataError: the source's folder, or its glob, and its pattern take one of the names.
    """
    if any(_takes(source, folder.resolve() / name) for name in names):
        raise DataError(f"source {source.name}: {what} {folder} lies inside {source.path}: put it elsewhere")


def _takes(source: Source, file: Path) -> bool:
    """Whether the source would read a file with that path, if it were there."""
    path = Path(source.path).expanduser()
    fixed = 0
    while fixed < len(path.parts) and not glob.has_magic(path.parts[fixed]):
        fixed += 1
    is_folder = fixed == len(path.parts) or path.exists()
    root = (path if is_folder else Path(*path.parts[:fixed])).resolve()
    if not file.is_relative_to(root):
        return False
    parts, wanted = file.relative_to(root).parts, path.parts[fixed:]
    if any(part.startswith(".") for part in parts):
        return False  # hidden, as `find_files` sees it
    if is_folder:
        return fnmatch(file.name, source.pattern)
    folders = any(_matches(parts[:depth], wanted) for depth in range(len(parts)))
    return _matches(parts, wanted) or (folders and fnmatch(file.name, source.pattern))


def _matches(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a glob's parts match those of a path."""
    if not wanted or not parts:
        return not parts and all(part == "**" for part in wanted)
    if wanted[0] == "**":
        return _matches(parts, wanted[1:]) or _matches(parts[1:], wanted)
    return fnmatch(parts[0], wanted[0]) and _matches(parts[1:], wanted[1:])
