"""A sample of a source: some of its files, and of each some records, the same ones every time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from data_prep.errors import DataError
from data_prep.read.documents import Record
from data_prep.read.input_file import InputFile
from data_prep.read.source import Source

# Files a sample is spread over, where there are as many: enough that no file decides for all.
_FILES = 32
# Of how much of one file records are counted: much more than is read ahead at once.
_BYTES_MEASURED = 16 << 20
_LIMIT = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>%|KB|MB|GB|TB|_?records?)?", re.IGNORECASE)
_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


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
    """How many records a source has, from those at the begin of its middle file."""
    from data_prep.read.records import open_records

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


def sampled(records: Iterator[Record], file: InputFile) -> Iterator[Record]:
    """The records of a file that are in its sample; which ones depends on the file's name and their lines."""
    begin = 0 if file.span is None else file.span[0]
    key = int.from_bytes(hashlib.blake2b(f"{file.name}@{begin}".encode(), digest_size=8).digest(), "little")
    bound = int(file.sample * (1 << 64))
    for record in records:
        if _scrambled(key + record.line) < bound:
            yield record


def _scrambled(number: int) -> int:
    """SplitMix64: as good as random, and the same everywhere."""
    number = (number * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return number ^ (number >> 31)
