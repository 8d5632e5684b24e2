"""Which files a source consists of, in an order that does not depend on the machine."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from data_prep.errors import DataError
from data_prep.read.source import Source

_JSONL_SUFFIXES = (".jsonl", ".ndjson")
# Files that `auto` must not take for plain text: read so, their documents would be silently wrong.
_NOT_PLAIN_TEXT = (".json", ".csv", ".parquet", ".arrow", ".zst", ".xz", ".bz2", ".zip", ".tar", ".tgz")


@dataclass(frozen=True)
class InputFile:
    """One file to read.

    Attributes:
        number: its place among the source's files.
        path: where it lies now.
        name: its path below the source's folder, with forward slashes; the same after a move.
        format: `jsonl` or `text`.
        num_bytes: size on disk, compressed where it is; with a span, the span's.
        mtime_ns: time of its last change.
        span: the part of the file that is meant, in bytes from its begin; None: all of it. Parts
            come from `split_file`, and lines are counted from their begin.
    """

    number: int
    path: str
    name: str
    format: str
    num_bytes: int
    mtime_ns: int
    span: tuple[int, int] | None = None

    def identity(self) -> dict[str, Any]:
        """What tells the file, or the part of it, from another version of it, wherever it lies."""
        fields = {"name": self.name, "format": self.format, "num_bytes": self.num_bytes, "mtime_ns": self.mtime_ns}
        return fields if self.span is None else {**fields, "span": list(self.span)}


def find_files(source: Source) -> list[InputFile]:
    """The files of a source, sorted by name.

    In folders and globs, files and folders whose names begin with a dot are left out; a file named
    outright is always read. Links are followed, each folder once.

    Raises:
        DataError: nothing at the path, nothing that matches, or a file whose format `auto` cannot
            tell from plain text.
    """
    root, paths = _list_paths(source)
    if not paths:
        raise DataError(
            f"source {source.name}: no file in {source.path} matches pattern {source.pattern!r} "
            "(names that begin with a dot are left out)"
        )
    names = {path: Path(os.path.relpath(path, root)).as_posix() for path in paths}
    files = []
    for number, path in enumerate(sorted(set(paths), key=lambda path: names[path])):
        status = os.stat(path)
        files.append(InputFile(number, path, names[path], _format(source, path), status.st_size, status.st_mtime_ns))
    return files


def _list_paths(source: Source) -> tuple[str, list[str]]:
    """The folder that names are relative to, and every path."""
    path = os.path.expanduser(source.path)
    if os.path.isfile(path):
        return os.path.dirname(path) or ".", [path]
    if os.path.isdir(path):
        return path, list(_walk(path, source.pattern))
    matches = sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) else []
    if not matches:
        raise DataError(f"source {source.name}: nothing at {source.path}: give a file, a folder or a glob")
    fixed = [part for part in Path(path).parts if not glob.has_magic(part)]
    depth = next(i for i, part in enumerate(Path(path).parts) if glob.has_magic(part))
    root = str(Path(*fixed[:depth])) if depth else "."
    paths: list[str] = []
    for match in matches:
        paths += [match] if os.path.isfile(match) else _walk(match, source.pattern)
    return root, [path for path in paths if os.path.isfile(path)]


def _walk(folder: str, pattern: str) -> Iterator[str]:
    seen = {os.path.realpath(folder)}
    for parent, folders, names in os.walk(folder, followlinks=True):
        visible = sorted(name for name in folders if not name.startswith("."))
        folders.clear()
        for name in visible:
            if (real := os.path.realpath(os.path.join(parent, name))) not in seen:
                seen.add(real)
                folders.append(name)
        for name in names:
            path = os.path.join(parent, name)
            if not name.startswith(".") and fnmatch(name, pattern) and os.path.isfile(path):
                yield path


def _format(source: Source, path: str) -> str:
    if source.format != "auto":
        return source.format
    name = os.path.basename(path).lower().removesuffix(".gz")
    if name.endswith(_JSONL_SUFFIXES):
        return "jsonl"
    if name.endswith(_NOT_PLAIN_TEXT):
        raise DataError(
            f"source {source.name}: {path} is neither JSON lines nor plain text. Leave it out by `pattern`, "
            "or set format=text or format=jsonl to read it so"
        )
    return "text"
