"""What a user says about one source of documents, and one file of it as it was found."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from data_prep.errors import DataError

FORMATS = ("auto", "jsonl", "json", "csv", "text", "parquet", "arrow", "mds", "megatron", "dataset")

_NAME_BYTES = 255  # what file systems take for a name
# Options that change neither which documents there are nor their tokens.
_NOT_OF_THE_DOCUMENTS = ("name", "path", "strict", "max_bad_fraction", "storage_options")
# In every store's manifest; the other options are there where they are not the default.
_ALWAYS_STATED = ("format", "pattern", "text_field", "where")


@dataclass(frozen=True)
class Source:
    """One source: where its documents lie and which part of each file is text.

    Attributes:
        name: names the source's folder in the store.
        path: a file, a folder (searched recursively) or a glob, local or at an address of fsspec
            (`s3://bucket/folder`); with `format=dataset`, a dataset of the hub or a folder of one.
        format: one of `FORMATS`; `text`: each file is a document; `auto`: by file name.
        pattern: in a folder, the file names to read, as a glob.
        text_field: the field of a record that holds the text.
        token_field: the field that holds token ids, of records that come tokenized; instead of
            `text_field`.
        mask_field: the field that says which of those tokens are trained on.
        boundary_field: the field that says where the documents in those tokens lie: ends, pairs of
            start and end, or objects with `end`.
        where: keep only records whose fields equal these values.
        group_by: join the records of a file that are equal in these fields into one document.
        group_separator: what is put between them.
        split: which split of a saved or hub dataset to read.
        subset: which configuration of a hub dataset.
        revision: which revision of a hub dataset.
        limit: read a sample only: a share (`1%`), bytes (`500MB`) or records (`10000_records`).
        strict: stop at the first bad record.
        max_bad_fraction: stop if a larger fraction of the records is bad; the first hundred never
            stop anything.
        storage_options: what fsspec needs to open the path, such as `{anon: true}`.

    Raises:
        DataError: a name that no folder can have, an unknown format, or options that exclude
            each other.
    """

    name: str
    path: str
    format: str = "auto"
    pattern: str = "*"
    text_field: str = "text"
    where: Mapping[str, str] = field(default_factory=dict)
    token_field: str | None = None
    mask_field: str | None = None
    boundary_field: str | None = None
    group_by: tuple[str, ...] = ()
    group_separator: str = "\n\n"
    split: str | None = None
    subset: str | None = None
    revision: str | None = None
    limit: str | None = None
    strict: bool = False
    max_bad_fraction: float = 0.05
    storage_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        is_odd = self.name.startswith(".") or any(character in self.name for character in "/\\\0")
        if is_odd or not 1 <= len(os.fsencode(self.name)) <= _NAME_BYTES:
            fix = f"use letters, digits, - and _, up to {_NAME_BYTES}"
            raise DataError(f"source name {self.name!r} cannot be a folder's name: {fix}")
        for option, value, fix in option_problems(self):
            raise DataError(f"source {self.name}: {option}={value!r} {fix}")

    def options(self) -> dict[str, Any]:
        """The options that determine the documents and their tokens, without the files themselves."""
        options = {}
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name in _NOT_OF_THE_DOCUMENTS or (option.name not in _ALWAYS_STATED and value == option.default):
                continue
            if isinstance(value, tuple):
                value = list(value)
            options[option.name] = dict(sorted(value.items())) if isinstance(value, Mapping) else value
        return options

    def wanted_fields(self) -> list[str]:
        """The fields of a record that are read at all, the one with the document first."""
        names = [self.token_field or self.text_field, self.mask_field, self.boundary_field, *self.where, *self.group_by]
        return list(dict.fromkeys(name for name in names if name is not None))


def option_problems(source: Any) -> Iterator[tuple[str, Any, str]]:
    """Options of a source that are invalid, as (name, value, fix); `source` has the attributes of `Source`."""
    if source.format not in FORMATS:
        yield "format", source.format, f"is not one of {', '.join(FORMATS)}"
    if source.format in ("text", "megatron"):
        for option in ("where", "group_by", "token_field", "mask_field", "boundary_field"):
            if value := getattr(source, option):
                shown = dict(value) if option == "where" else value
                yield option, shown, f"selects fields of records, but format={source.format} has none: leave it out"
    if source.token_field is None and source.format != "megatron":
        for option in ("mask_field", "boundary_field"):
            if value := getattr(source, option):
                yield option, value, "is for records that come tokenized: set token_field too"
    if source.token_field is not None and source.group_by:
        yield "group_by", source.group_by, "joins texts, but token_field says that there are none: leave one out"
    if source.format != "dataset":
        for option in ("subset", "revision"):
            if value := getattr(source, option):
                yield option, value, "is for a dataset of the hub: set format=dataset, or leave it out"
    if not 0 <= source.max_bad_fraction <= 1:
        yield "max_bad_fraction", source.max_bad_fraction, "must be at least 0 and at most 1"


@dataclass(frozen=True)
class InputFile:
    """One file to read, or a part of one.

    Attributes:
        number: its place among the source's files.
        path: where it is now.
        name: its path below the source's folder, with forward slashes; the same after a move.
        format: one of `FORMATS`, but for `auto`.
        num_bytes: size in storage, compressed if it is; with a span, the size of the span.
        mtime_ns: time of its last change; 0 if unknown.
        span: the part of the file that is meant, in bytes from its begin; None: all of it. Parts
            come from `split_file`, and lines are counted from the beginning of the part.
        version: what a remote store calls its content, or empty.
        sample: the share of its records to read; fewer than all in a sample of the source.
        storage_options: what fsspec needs to open it.
    """

    number: int
    path: str
    name: str
    format: str
    num_bytes: int
    mtime_ns: int
    span: tuple[int, int] | None = None
    version: str = ""
    sample: float = 1.0
    storage_options: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)

    def identity(self) -> dict[str, Any]:
        """What distinguishes the file, or the part of it, from another version of it, wherever it is."""
        fields = {"name": self.name, "format": self.format, "num_bytes": self.num_bytes, "mtime_ns": self.mtime_ns}
        optional = {
            "span": None if self.span is None else list(self.span),
            "version": self.version or None,
            "sample": None if self.sample == 1 else self.sample,
        }
        return fields | {name: value for name, value in optional.items() if value is not None}
