"""A dataset of the Hugging Face hub, or a local folder of one, streamed by the `datasets` library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from data_prep.errors import DataError
from data_prep.read.documents import Row
from data_prep.read.source import Source

# What a shard of unknown size counts as: each is a unit of work of its own.
_NOMINAL_BYTES = 64 << 20


@dataclass(frozen=True)
class Shard:
    """One shard of a dataset: `version` identifies its content, `num_bytes` is an estimate."""

    name: str
    num_bytes: int
    version: str


def list_shards(source: Source) -> list[Shard]:
    """The shards of one split.

    Raises:
        DataError: no such dataset, or several splits and none named.
    """
    dataset, split = _load(source)
    info = dataset.info
    total = next((size for size in (info.download_size, info.dataset_size) if size), None)
    num_shards = dataset.num_shards
    num_bytes = total // num_shards if total else _NOMINAL_BYTES
    version = _version(source, split)
    return [Shard(f"{split}-{number:05d}-of-{num_shards:05d}", num_bytes, version) for number in range(num_shards)]


def read_shard(number: int, source: Source) -> Iterator[Row]:
    """A record per row, numbered from 1."""
    dataset, _ = _load(source)
    if dataset.column_names is not None:
        wanted = [name for name in source.wanted_fields() if name in dataset.column_names]
        if source.wanted_fields()[0] in wanted:
            dataset = dataset.select_columns(wanted)
    rows = iter(dataset.shard(dataset.num_shards, number))
    line = 0
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except Exception as error:  # whatever the dataset's own loader raises
            raise DataError(f"dataset {source.path}: shard {number} breaks off after row {line}: {error}") from error
        line += 1
        yield Row(line, row)


def _load(source: Source) -> tuple[Any, str]:
    import datasets

    try:
        found = datasets.load_dataset(
            source.path, source.subset, split=source.split, revision=source.revision, streaming=True
        )
    except Exception as error:  # the library raises many kinds
        raise DataError(f"source {source.name}: the dataset {source.path} cannot be loaded: {error}") from error
    if source.split is not None:
        return found, source.split
    splits = list(found)
    if len(splits) != 1:
        raise DataError(f"source {source.name}: {source.path} has the splits {', '.join(splits)}: set split to one")
    return found[splits[0]], splits[0]


def _version(source: Source, split: str) -> str:
    """A hash of where the split's files lie and of their versions: a commit of the hub, or times of files."""
    import datasets

    from data_prep.disk import digest_json

    builder = datasets.load_dataset_builder(source.path, source.subset, revision=source.revision)
    files = (builder.config.data_files or {}).get(split)
    if files is None:
        return str(builder.hash or "")
    return digest_json([[str(part) for part in entry] for entry in files.origin_metadata] or list(map(str, files)))
