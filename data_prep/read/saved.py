"""What `datasets`, mosaicml-streaming and Megatron write beside their data, and what it says of the data."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from data_prep.errors import DataError
from data_prep.read.source import Source
from data_prep.read.storage import is_remote

_SAVED_BY_DATASETS = ("state.json", "dataset_info.json", "dataset_dict.json")

Found = dict[str, tuple[str, int, int, str]]
"""By name: path, bytes, time of the last change, version."""


def without_side_files(source: Source, found: Found) -> Found:
    """Leave out what is not data beside Arrow files of `datasets`, MDS shards and Megatron's .bin."""
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
        raise DataError(f"source {source.name}: {source.path} holds no data, only files that describe data")
    return kept


def _saved_files(source: Source, found: Found, folder: str) -> set[str]:
    """The data files of a dataset that `save_to_disk` wrote, by its own account."""
    path = found[f"{folder}/state.json" if folder else "state.json"][0]
    if is_remote(path):
        return {name.rpartition("/")[2] for name in found if "cache-" not in name}
    try:
        names = {entry["filename"] for entry in json.loads(Path(path).read_bytes())["_data_files"]}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not what datasets.save_to_disk writes ({error!r}): save the dataset again"
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
        raise DataError(f"{path} is not what mosaicml-streaming writes ({error!r}): copy it again") from error
    if missing := [min(either) for either in names if not either & beside]:
        raise DataError(f"{path} lists {len(missing)} shard(s) that are not there, such as {missing[0]}: copy them too")


def _one_split(source: Source, folder: str, found: Found) -> Found:
    """Of a saved DatasetDict the split that the source names; none need be named if there is only one."""
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
