"""Which files a source consists of, in an order that does not depend on the machine."""

from __future__ import annotations

import functools
import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from data_prep.errors import DataError
from data_prep.read.formats import dataset
from data_prep.read.saved import Found, without_side_files
from data_prep.read.source import InputFile, Source
from data_prep.read.storage import is_remote, remote_files, time_and_version
from data_prep.read.unpack import compression_of

_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".mds": "mds",
    ".bin": "megatron",
}
# Formats that are read in any order, so not through a decompressor.
_NOT_COMPRESSED = ("parquet", "arrow", "megatron")
# Files that `auto` must not take for plain text: read so, their documents would be silently wrong.
_NOT_PLAIN_TEXT = (".idx", ".bz2", ".zip", ".tar", ".tgz", ".7z", ".tsv", ".orc", ".avro", ".npy", ".pkl", ".pdf")


def find_files(source: Source) -> list[InputFile]:
    """The files of a source, sorted by name.

    Files and folders whose names begin with a dot are hidden: they are read only where the user writes
    the dot, in the name of a file or folder, in that part of a glob or at the beginning of `pattern`.
    Links are followed, each folder once. What `datasets` and mosaicml-streaming write beside their data
    is known, and not read as documents.

    Raises:
        DataError: nothing at the path, nothing that matches, a file whose format `auto` cannot tell
            from plain text, or a name that is not UTF-8.
    """
    if source.format == "dataset":
        shards = dataset.list_shards(source)
        return [
            InputFile(number, source.path, shard.name, "dataset", shard.num_bytes, 0, version=shard.version)
            for number, shard in enumerate(shards)
        ]
    if is_remote(source.path):
        found = _remote(source)
    else:
        found = _local(source)
    if not found:
        raise DataError(
            f"source {source.name}: no file in {source.path} matches pattern {source.pattern!r} "
            "(names that begin with a dot are read only where the glob or pattern has the dot too)"
        )
    if source.format == "auto":
        found = without_side_files(source, found)
    files = []
    for number, name in enumerate(sorted(found)):
        _check_name(source, name)
        path, num_bytes, mtime_ns, version = found[name]
        kind = _format(source, path)
        files.append(
            InputFile(number, path, name, kind, num_bytes, mtime_ns, None, version, 1.0, source.storage_options)
        )
    return files


def _check_name(source: Source, name: str) -> None:
    """Refuse a name that is not UTF-8: no manifest could hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"source {source.name}: the file name {name!r} is not UTF-8: rename the file, or leave it out by `pattern`"
        ) from None


def _local(source: Source) -> Found:
    root, paths = _list_paths(source)
    found = {}
    for path in paths:
        try:
            status = os.stat(path)
        except OSError as error:  # it was there a moment ago
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        name = Path(os.path.relpath(path, root)).as_posix()
        found[name] = (path, status.st_size, status.st_mtime_ns, "")
    return found


def _remote(source: Source) -> Found:
    root, wanted, infos = remote_files(source.path, source.storage_options)
    if not infos:
        raise DataError(f"source {source.name}: nothing at {source.path}: give a file, a folder or a glob")
    found = {}
    for address, info in infos.items():
        name = info["name"].removeprefix(root).lstrip("/")
        parts = PurePosixPath(name).parts
        is_named = parts == wanted
        if is_named or (_is_taken(parts, wanted, source.pattern) and fnmatch(parts[-1], source.pattern)):
            if info.get("size") is None:
                raise DataError(f"{address} is of unknown size: copy it to a local folder, and read that")
            found[name] = (address, info["size"], *time_and_version(info))
    return found


def _list_paths(source: Source) -> tuple[str, list[str]]:
    """The folder that names are relative to, and every path."""
    path = os.path.expanduser(source.path)
    if os.path.isfile(path):
        return os.path.dirname(path) or ".", [path]
    if os.path.isdir(path):
        return path, list(_walk(path, source.pattern))
    matches = _matches(path) if glob.has_magic(path) else []
    if not matches:
        raise DataError(f"source {source.name}: nothing at {source.path}: give a file, a folder or a glob")
    fixed = [part for part in Path(path).parts if not glob.has_magic(part)]
    depth = next(i for i, part in enumerate(Path(path).parts) if glob.has_magic(part))
    root = str(Path(*fixed[:depth])) if depth else "."
    paths: list[str] = []
    for match in matches:
        paths += _walk(match, source.pattern) if os.path.isdir(match) else [match] if _is_file(match) else []
    return root, _once(paths)


def _matches(pattern: str) -> list[str]:
    """What a glob matches. Below `**` each folder is searched once: glob alone goes round in circles of links."""
    parts = Path(pattern).parts
    if "**" not in parts:
        return sorted(glob.glob(pattern))
    at = parts.index("**")
    roots = [root for root in (_matches(str(Path(*parts[:at]))) if at else ["."]) if os.path.isdir(root)]
    if at == len(parts) - 1:
        return roots  # a folder is searched to its end anyway
    below = [folder for root in roots for folder, _ in _folders(root)]
    return [match for folder in below for match in _matches(str(Path(glob.escape(folder), *parts[at + 1 :])))]


def _once(paths: list[str]) -> list[str]:
    """Of several names that links give to one folder, only the shortest is kept for its files."""
    real = functools.cache(os.path.realpath)
    places: dict[tuple[str, str], str] = {}
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        places.setdefault((real(os.path.dirname(path)), os.path.basename(path)), path)
    return list(places.values())


def _walk(folder: str, pattern: str) -> Iterator[str]:
    for parent, names in _folders(folder):
        for name in names:
            path = os.path.join(parent, name)
            if _fits(name, pattern) and _is_file(path):
                yield path


def _folders(folder: str) -> Iterator[tuple[str, list[str]]]:
    """A folder and those below that are not hidden, each once, with the names of their files."""
    seen = {os.path.realpath(folder)}
    for parent, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        visible = sorted(name for name in folders if not name.startswith("."))
        folders.clear()
        for name in visible:
            if (real := os.path.realpath(os.path.join(parent, name))) not in seen:
                seen.add(real)
                folders.append(name)
        yield parent, names


def _is_file(path: str) -> bool:
    """Whether there is a file to read; a broken link must not be skipped silently."""
    if os.path.islink(path) and not os.path.exists(path):
        raise DataError(f"{path} is a broken link: fix it, remove it, or leave it out by `pattern`")
    return os.path.isfile(path)


def _refuse(error: OSError) -> None:
    raise DataError(
        f"{error.filename} cannot be searched: {error.strerror}. Make it readable, or name what to read by a glob"
    ) from error


def _format(source: Source, path: str) -> str:
    name = os.path.basename(path).lower()
    packing = compression_of(name) or ""
    plain = name.removesuffix(packing)
    kind = source.format
    if kind == "auto":
        if plain.endswith(_NOT_PLAIN_TEXT):
            raise DataError(
                f"source {source.name}: {path} is of no known format, and not plain text. Leave it out by `pattern`, "
                "or set format=text or format=jsonl to read it so"
            )
        kind = next((known for suffix, known in _SUFFIXES.items() if plain.endswith(suffix)), "text")
    if kind in _NOT_COMPRESSED and packing:
        raise DataError(f"source {source.name}: {path} is {kind} data inside {packing}: unpack it first")
    if kind == "megatron" and not name.endswith(".bin"):
        raise DataError(f"source {source.name}: {path} is no .bin of Megatron: set pattern='*.bin'")
    return kind


def check_apart(source: Source, folder: Path, what: str, names: Iterable[str]) -> None:
    """Refuse a source that would read, the next time, files that packing writes.

    Args:
        folder: where they are written.
        what: what is written there, for the message.
        names: of such files.

    Raises:
        DataError: the source's folder or glob, with its pattern, matches one of the names.
    """
    if any(_would_read(source, folder.resolve() / name) for name in names):
        raise DataError(f"source {source.name}: {what} {folder} lies inside {source.path}: put it elsewhere")


def _would_read(source: Source, file: Path) -> bool:
    """Whether the source would read a file with that path, if it existed."""
    path = Path(source.path).expanduser()
    fixed = 0
    while fixed < len(path.parts) and not glob.has_magic(path.parts[fixed]):
        fixed += 1
    is_folder = fixed == len(path.parts) or path.exists()
    root = (path if is_folder else Path(*path.parts[:fixed])).resolve()
    if not file.is_relative_to(root):
        return False
    return _is_taken(file.relative_to(root).parts, () if is_folder else path.parts[fixed:], source.pattern)


def _is_taken(parts: Sequence[str], wanted: Sequence[str], pattern: str) -> bool:
    """Whether a file is among those of a folder or glob.

    Args:
        parts: of the file's path, below the folder or below the part of the glob without wildcards.
        wanted: the rest of the glob; empty for a folder.
        pattern: of names in folders.
    """
    if wanted and wanted[-1] != "**" and _matches_glob(parts, wanted):
        return True
    if not _fits(parts[-1], pattern):
        return False
    visible = len(parts) - 1  # folders from here on are not hidden
    while visible and not parts[visible - 1].startswith("."):
        visible -= 1
    return any(_matches_glob(parts[:depth], wanted) for depth in range(visible, len(parts)))


def _matches_glob(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the parts of a path match those of a glob; `**` stands for any folders that are not hidden."""
    if not wanted or not parts:
        return not parts and all(part == "**" for part in wanted)
    if wanted[0] == "**":
        below = not parts[0].startswith(".") and _matches_glob(parts[1:], wanted)
        return below or _matches_glob(parts, wanted[1:])
    return _fits(parts[0], wanted[0]) and _matches_glob(parts[1:], wanted[1:])


def _fits(name: str, pattern: str) -> bool:
    """Whether a name matches; one that begins with a dot only matches a pattern that does too."""
    return fnmatch(name, pattern) and (pattern.startswith(".") or not name.startswith("."))
