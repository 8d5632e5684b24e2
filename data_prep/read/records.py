"""Any input file -> its records: `open_records`, and an error that explains why no file holds a document."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from data_prep.errors import DataError
from data_prep.read.documents import (
    NO_GROUP_FIELD,
    NO_TEXT_FIELD,
    NO_TOKEN_FIELD,
    Record,
    Row,
    Skipped,
    document_of_row,
    documents_of_tokens,
    list_fields,
    stop_at_bad,
)
from data_prep.read.formats.columns import OnShare, read_arrow, read_parquet
from data_prep.read.formats.dataset import read_shard
from data_prep.read.formats.mds import read_mds
from data_prep.read.formats.megatron import index_digest, read_megatron
from data_prep.read.formats.text import read_csv, read_json, read_jsonl, read_text
from data_prep.read.groups import grouped_documents
from data_prep.read.source import InputFile, Source
from data_prep.read.storage import on_this_machine, open_stream

Items = Iterator[Row | Record]
OnBytes = Callable[[int], None]

_FIELD_OPTIONS = {NO_TEXT_FIELD: "text_field", NO_TOKEN_FIELD: "token_field", NO_GROUP_FIELD: "group_by"}


class Records:
    """The records of one open input file, in an order that is always the same."""

    def __init__(self, records: Iterator[Record], finish: Callable[[], str], num_lines: Callable[[], int]) -> None:
        self._records = records
        self._finish = finish
        self._num_lines = num_lines

    def __iter__(self) -> Iterator[Record]:
        return self._records

    @property
    def num_lines(self) -> int:
        """Lines read so far: after `finish`, all of the part; line numbers of the next part are offset by them."""
        return self._num_lines()

    def finish(self) -> str:
        """What identifies the content that was read: `content_hash` of the file.

        Raises:
            DataError: the file is not as long as it was when it was found.
        """
        return self._finish()


@contextmanager
def open_records(file: InputFile, source: Source, on_bytes: OnBytes | None = None) -> Iterator[Records]:
    """Open an input file, or the part of one that its span says, for its records.

    Args:
        on_bytes: told of every block read, in bytes as they lie in storage; of all of them once
            `finish` has been called.

    Raises:
        DataError: unreadable, cut short or damaged; names the file. Reading further may raise it too.
    """
    with _open(file, source, on_bytes or (lambda count: None)) as (items, finish, num_lines):
        records = _records(items, file, source)
        yield Records(stop_at_bad(records, file.path) if source.strict else records, finish, num_lines)


def content_hash(file: InputFile) -> str:
    """SHA-256 of the bytes of a file, or of the part that its span says; of a hub dataset, of its version."""
    if file.format == "dataset":
        return hashlib.sha256(f"{file.version}/{file.name}".encode()).hexdigest()
    with open_stream(file) as stream:
        digest = stream.finish()
    if file.format == "megatron":  # documents are where its index says
        digest = hashlib.sha256(bytes.fromhex(digest) + index_digest(file.path, file.span)).hexdigest()
    return digest


def check_has_documents(source: Source, files: list[InputFile]) -> None:
    """Read up to the first document, so that a wrong option costs seconds and no hours.

    Raises:
        DataError: no file holds a document; says what the records are instead.
    """
    reasons: dict[str, int] = {}
    fields: dict[str, None] = {}
    for file in files:
        with _open(file, source, lambda count: None) as (items, _, _):
            for record in _one_by_one(items, source):  # joining a file's groups would read all of it
                if not isinstance(record, Skipped):
                    return
                reasons[record.reason] = reasons.get(record.reason, 0) + 1
                fields.update(dict.fromkeys(record.fields))
    where = f"source {source.name}: {source.path}"
    if not reasons:
        raise DataError(f"{where} is empty: its {len(files)} file(s) hold no records")
    if len(reasons) == 1 and (option := _FIELD_OPTIONS.get(next(iter(reasons)))) is not None:
        raise DataError(_no_field(where, source, option, list_fields(fields)))
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    found = f". Fields found: {list_fields(fields)}" if fields else ""
    raise DataError(f"{where} holds no document; its records: {counts}{found}")


def _no_field(where: str, source: Source, option: str, found: str) -> str:
    holds = {"text_field": "the text", "token_field": "the token ids", "group_by": "what groups them"}[option]
    name = getattr(source, option)
    shown = repr(name) if isinstance(name, str) else " or ".join(map(repr, name))
    return (
        f"{where} has no field {shown} in any record. Fields found: {found}. Set {option} to the one that holds {holds}"
    )


def _records(items: Items, file: InputFile, source: Source) -> Iterator[Record]:
    if source.group_by:
        records: Iterator[Record] = grouped_documents(items, source)  # type: ignore[arg-type]
    else:
        records = _one_by_one(items, source)
    return _sampled(records, file) if file.sample < 1 else records


def _one_by_one(items: Items, source: Source) -> Iterator[Record]:
    for item in items:
        if not isinstance(item, Row):
            yield item
        elif source.token_field is not None:
            yield from documents_of_tokens(item, source)
        else:
            yield document_of_row(item, source)


def _sampled(records: Iterator[Record], file: InputFile) -> Iterator[Record]:
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


_Opened = tuple[Items, Callable[[], str], Callable[[], int]]

FROM_THE_FRONT: dict[str, Callable[..., Items]] = {
    "jsonl": read_jsonl,
    "json": read_json,
    "csv": read_csv,
    "text": read_text,
}
"""Readers of formats that are read from front to back: they take the stream and the file."""

_IN_ANY_ORDER: dict[str, Callable[[str, InputFile, Source, OnShare], Items]] = {
    "parquet": read_parquet,
    "arrow": read_arrow,
    "megatron": read_megatron,
}


def _open(file: InputFile, source: Source, on_bytes: OnBytes) -> AbstractContextManager[_Opened]:
    if file.format == "dataset":
        return _open_shard(file, source, on_bytes)
    way = _open_in_any_order if file.format in _IN_ANY_ORDER else _open_from_the_front
    return way(file, source, on_bytes)


@contextmanager
def _open_from_the_front(file: InputFile, source: Source, on_bytes: OnBytes) -> Iterator[_Opened]:
    with open_stream(file, on_bytes) as stream:
        if file.format == "mds":
            items: Items = read_mds(stream.file, file, source)
        else:
            wanted = (source.wanted_fields(),) if file.format == "csv" else ()
            items = FROM_THE_FRONT[file.format](stream.file, file, *wanted)
        yield items, stream.finish, lambda: stream.num_newlines


@contextmanager
def _open_in_any_order(file: InputFile, source: Source, on_bytes: OnBytes) -> Iterator[_Opened]:
    """Progress follows the share of rows, as such formats jump about; the hash is taken in the end."""
    told = num_lines = 0

    def on_share(share: float) -> None:
        nonlocal told
        reached = int(file.num_bytes * share)
        on_bytes(reached - told)
        told = reached

    def counted(items: Items) -> Items:
        nonlocal num_lines
        for item in items:
            num_lines = item.line
            yield item

    with on_this_machine(file.path, file.storage_options) as path:
        local = file if path == file.path else replace(file, path=path, mtime_ns=os.stat(path).st_mtime_ns)

        def finish() -> str:
            digest = content_hash(local)
            on_share(1.0)
            return digest

        reader = _IN_ANY_ORDER[file.format]
        yield counted(_sound(reader(path, file, source, on_share), file)), finish, lambda: num_lines


@contextmanager
def _open_shard(file: InputFile, source: Source, on_bytes: OnBytes) -> Iterator[_Opened]:
    def finish() -> str:
        on_bytes(file.num_bytes)
        return content_hash(file)

    number = int(file.name.rsplit("-", 3)[1])
    yield read_shard(number, source), finish, lambda: 0


def _sound(items: Items, file: InputFile) -> Items:
    """Pass items on; errors of the Arrow library become a `DataError` that names the file."""
    import pyarrow

    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            name = Path(file.path).name
            raise DataError(f"{file.path} is not sound {file.format} data ({error}). Copy {name} again") from error
        yield item
