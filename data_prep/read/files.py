"""Which files a source consists of, in an order that does not depend on the machine."""

from __future__ import annotations

import functools
import glob
import json
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from data_prep.errors import DataError
from data_prep.read.formats import dataset
from data_prep.read.input_file import InputFile
from data_prep.read.source import Source
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
_SAVED_BY_DATASETS = ("state.json", "dataset_info.json", "dataset_dict.json")


def find_files(source: Source) -> list[InputFile]:
    """The files of a source, sorted by name.

    In folders and globs, files and folders whose names begin with a dot are left out; a file named
    outright is always read. Links are followed, each folder once. What `datasets` and
    mosaicml-streaming write beside their data is known, and not read as documents.

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
            "(names that begin with a dot are left out)"
        )
    if source.format == "auto":
        found = _without_side_files(source, found)
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
    """Refuse bytes that are no UTF-8 in a name: no manifest could hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"source {source.name}: the file name {name!r} is not UTF-8: rename the file, or leave it out by `pattern`"
        ) from None


_Found = dict[str, tuple[str, int, int, str]]
"""By name: path, bytes, time of the last change, version."""


def _local(source: Source) -> _Found:
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


def _remote(source: Source) -> _Found:
    root, infos = remote_files(source.path, source.storage_options)
    if not infos:
        raise DataError(f"source {source.name}: nothing at {source.path}: give a file, a folder or a glob")
    found = {}
    for address, info in infos.items():
        name = info["name"].removeprefix(root).lstrip("/")
        hidden = any(part.startswith(".") for part in PurePosixPath(name).parts)
        if len(infos) == 1 or (not hidden and fnmatch(PurePosixPath(name).name, source.pattern)):
            if info.get("size") is None:
                raise DataError(f"{address} is of unknown size: copy it to a folder here, and read that")
            found[name] = (address, info["size"], *time_and_version(info))
    return found


def _without_side_files(source: Source, found: _Found) -> _Found:
    """Leave out what is no data beside Arrow files of `datasets`, MDS shards and Megatron's .bin."""
    folders: dict[str, set[str]] = {}
    for name in found:
        folder, _, base = name.rpartition("/")
        folders.setdefault(folder, set()).add(base)
    kept = {}
    splits = set()
    saved = functools.cache(lambda folder: _saved_files(source, found, folder))
    for name, entry in found.items():
        folder, _, base = name.rpartition("/")
        beside = folders[folder]
        if base in _SAVED_BY_DATASETS and not (base == "state.json" and "dataset_info.json" not in beside):
            if base == "dataset_dict.json":
                splits.add(folder)
            continue
        if base.endswith(".arrow") and "state.json" in beside and base not in saved(folder):
            continue  # what `map` and `filter` left there: the documents a second time
        if base == "index.json" and any(".mds" in other for other in beside):
            if source.pattern == "*":
                _check_shards(entry[0], beside)
            continue
        if base.endswith(".idx") and f"{base[:-4]}.bin" in beside:
            continue
        kept[name] = entry
    for folder in splits:
        kept = _one_split(source, folder, kept)
    if not kept:
        raise DataError(f"source {source.name}: {source.path} holds no data, only what lies beside data")
    return kept


def _saved_files(source: Source, found: _Found, folder: str) -> set[str]:
    """The data files of a dataset that `save_to_disk` wrote, by its own account."""
    path = found[f"{folder}/state.json" if folder else "state.json"][0]
    if is_remote(path):
        return {name.rpartition("/")[2] for name in found if "cache-" not in name}
    try:
        names = {entry["filename"] for entry in json.loads(Path(path).read_bytes())["_data_files"]}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not what datasets.save_to_disk writes ({error!r}): save the dataset anew"
        ) from error
    missing = sorted(name for name in names if (f"{folder}/{name}" if folder else name) not in found)
    if missing and source.pattern == "*":
        raise DataError(f"{path} lists {len(missing)} file(s) that are not there, such as {missing[0]}: copy them too")
    return names


def _check_shards(path: str, beside: set[str]) -> None:
    """Refuse a folder of mosaicml-streaming in which shards are missing that its index.json lists."""
    if is_remote(path):
        return
    try:
        shards = json.loads(Path(path).read_bytes())["shards"]
        names = [{part["basename"] for key in ("raw_data", "zip_data") if (part := shard.get(key))} for shard in shards]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not what mosaicml-streaming writes ({error!r}): copy it anew") from error
    if missing := [min(either) for either in names if not either & beside]:
        raise DataError(f"{path} lists {len(missing)} shard(s) that are not there, such as {missing[0]}: copy them too")


def _one_split(source: Source, folder: str, found: _Found) -> _Found:
    """Of a saved DatasetDict the split that the source names; it may be left unsaid where there is one."""
    prefix = f"{folder}/" if folder else ""
    inside = {name: name.removeprefix(prefix).partition("/")[0] for name in found if name.startswith(prefix)}
    splits = sorted(set(inside.values()))
    wanted = source.split or (splits[0] if len(splits) == 1 else None)
    if wanted not in splits:
        raise DataError(
            f"source {source.name}: {source.path} has the splits {', '.join(splits)}: "
            f"set split to one of them{f', not {wanted}' if wanted else ''}"
        )
    return {name: entry for name, entry in found.items() if inside.get(name, wanted) == wanted}


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
    """Of the names that links give a file's folder only the shortest."""
    real = functools.cache(os.path.realpath)
    places: dict[tuple[str, str], str] = {}
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        places.setdefault((real(os.path.dirname(path)), os.path.basename(path)), path)
    return list(places.values())


def _walk(folder: str, pattern: str) -> Iterator[str]:
    for parent, names in _folders(folder):
        for name in names:
            path = os.path.join(parent, name)
            if not name.startswith(".") and fnmatch(name, pattern) and _is_file(path):
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
    """Whether there is a file to read; what lies behind a broken link must not be missed in silence."""
    if os.path.islink(path) and not os.path.exists(path):
        raise DataError(f"{path} is a link to nothing: mend it, remove it, or leave it out by `pattern`")
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
