"""What is read of the files of a source: a sample, if `limit` asks for one, and large files in parts."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from data_prep.errors import DataError
from data_prep.read.formats.columns import row_group_starts
from data_prep.read.formats.megatron import read_index
from data_prep.read.records import open_records
from data_prep.read.source import InputFile, Source
from data_prep.read.storage import is_remote, open_binary
from data_prep.read.unpack import compression_of

# Files a sample is spread over, where there are as many: enough that no file decides for all.
_FILES = 32
# Of how much of one file records are counted: much more than is read ahead at once.
_BYTES_MEASURED = 16 << 20
_LIMIT = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>%|KB|MB|GB|TB|_?records?)?", re.IGNORECASE)
_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SEARCH_BYTES = 1 << 16


@dataclass(frozen=True)
class Limit:
    """How much of a source to read: one of a share, bytes in storage, or records."""

    share: float | None = None
    num_bytes: float | None = None
    num_records: int | None = None


def parse_limit(text: str) -> Limit:
    """`1%`, `0.01`, `500MB` or `10000_records`.

    Raises:
        DataError: none of these, or nothing, or more than all.
    """
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise DataError(f"limit={text!r} is not understood: give a share (1%), bytes (500MB) or 10000_records")
    number, unit = float(match["number"]), (match["unit"] or "").lower()
    if unit in _UNITS:
        limit = Limit(num_bytes=number * _UNITS[unit])
    elif "record" in unit:
        limit = Limit(num_records=int(number))
    else:
        limit = Limit(share=number / 100 if unit == "%" else number)
        if number > (100 if unit == "%" else 1):
            raise DataError(f"limit={text!r} is more than all: give a share (1%), bytes (500MB) or 10000_records")
    if not number:
        raise DataError(f"limit={text!r} is nothing: give a share (1%), bytes (500MB) or 10000_records")
    return limit


def sample_files(files: Sequence[InputFile], source: Source) -> tuple[list[InputFile], dict[str, Any] | None]:
    """The files of a source's sample, each with the share of its records that is in it.

    Files are taken in the order of a hash of their names until they are enough and not too few; where
    that is more than the limit, each gives a share of its records. Of plain text, whose file is one
    record, whole files are taken.

    Returns:
        The files in their order; and what a store says of its sample, or None without a limit:
        `limit`, `fraction` of the source (by bytes in storage), `files` of `of_files`, `num_bytes` of
        all and `read_bytes` of those taken.
    """
    if source.limit is None:
        return list(files), None
    total = sum(file.num_bytes for file in files)
    share = _share(parse_limit(source.limit), files, source, total)
    chosen: list[InputFile] = []
    taken = 0
    for file in sorted(files, key=lambda file: hashlib.blake2b(file.name.encode(), digest_size=8).digest()):
        whole = file.format == "text"
        if chosen and taken >= share * total and (whole or len(chosen) >= _FILES):
            break
        chosen.append(file)
        taken += file.num_bytes
    of_records = min(share * total / taken, 1.0) if taken else 1.0
    kept = [replace(file, sample=1.0 if file.format == "text" else of_records) for file in chosen]
    fraction = sum(file.num_bytes * file.sample for file in kept) / total if total else 1.0
    account = {
        "limit": source.limit,
        "fraction": fraction,
        "files": len(kept),
        "of_files": len(files),
        "num_bytes": total,
        "read_bytes": taken,
    }
    return sorted(kept, key=lambda file: file.number), account


def _share(limit: Limit, files: Sequence[InputFile], source: Source, total: int) -> float:
    if limit.share is not None:
        return limit.share
    if limit.num_bytes is not None:
        return min(limit.num_bytes / total, 1.0) if total else 1.0
    assert limit.num_records is not None
    return min(limit.num_records / max(_estimate_records(files, source, total), 1), 1.0)


def _estimate_records(files: Sequence[InputFile], source: Source, total: int) -> float:
    """How many records a source has, estimated from the beginning of its middle file."""
    file = files[len(files) // 2]
    read = count = 0

    def on_bytes(num_bytes: int) -> None:
        nonlocal read
        read += num_bytes

    with open_records(file, source, on_bytes) as records:
        for _ in records:
            count += 1
            if read >= _BYTES_MEASURED:
                break
    return count * total / max(min(read, file.num_bytes), 1)


def split_file(file: InputFile, unit_bytes: int, source: Source | None = None) -> list[InputFile]:
    """Cut a file into parts of about `unit_bytes`, each an `InputFile` with a span of bytes.

    The parts hold the file's records in order, each once, and depend on its content alone: a part
    begins where a line, a row group of Parquet or a document of Megatron does. What cannot be cut
    (compressed and remote files, other formats, a file whose records `source` groups) comes back as
    it is, and so does a small file.
    """
    starts_in = _STARTS.get(file.format)
    grouped = source is not None and bool(source.group_by)
    is_whole = file.span is not None or file.num_bytes <= unit_bytes or starts_in is None or grouped
    if is_whole or is_remote(file.path) or compression_of(file.path) is not None:
        return [file]
    assert starts_in is not None
    edges = [*(start for start in starts_in(file, unit_bytes) if start < file.num_bytes), file.num_bytes]
    return [replace(file, span=(begin, end), num_bytes=end - begin) for begin, end in itertools.pairwise(edges)]


def _line_starts(file: InputFile, unit_bytes: int) -> list[int]:
    """0, and where a line begins at or after each multiple of `unit_bytes`."""
    edges = [0]
    with open_binary(file.path, {}) as lines:
        while edges[-1] + unit_bytes < file.num_bytes:
            lines.seek(edges[-1] + unit_bytes - 1, os.SEEK_SET)  # a line may begin at the target itself
            while block := lines.read(_SEARCH_BYTES):
                if (at := block.find(b"\n")) >= 0:
                    break
            else:
                break
            edges.append(lines.tell() - len(block) + at + 1)
    return edges


def _group_starts(file: InputFile, unit_bytes: int) -> list[int]:
    """Where row groups begin, so many that no part but the last is smaller than `unit_bytes`."""
    import pyarrow.parquet

    try:
        starts = row_group_starts(pyarrow.parquet.ParquetFile(file.path))
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file.path} is not sound parquet data ({error}). Copy it again") from error
    return _spaced(starts, unit_bytes)


def _document_starts(file: InputFile, unit_bytes: int) -> list[int]:
    """Where Megatron documents begin, chosen as for row groups."""
    return _spaced(read_index(file.path, file.num_bytes).starts, unit_bytes)


def _spaced(starts: Sequence[int] | np.ndarray, unit_bytes: int) -> list[int]:
    """0, and of the increasing `starts` each that is at least `unit_bytes` after the one chosen before."""
    edges = [0]
    places = np.asarray(starts, dtype=np.int64)
    while (following := int(np.searchsorted(places, edges[-1] + unit_bytes))) < len(places):
        edges.append(int(places[following]))
    return edges


_STARTS: dict[str, Callable[[InputFile, int], list[int]]] = {
    "jsonl": _line_starts,
    "parquet": _group_starts,
    "megatron": _document_starts,
}
