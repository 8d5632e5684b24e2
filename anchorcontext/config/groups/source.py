"""One entry of `data.sources`: where documents are read from, and which of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from anchorcontext.config.files import source_problems
from anchorcontext.config.rules import number
from anchorcontext.errors import Problem
from data_prep.read import option_problems


@dataclass
class SourceConfig:
    """One source of documents."""

    path: str = MISSING
    """A file, a folder (searched recursively) or a glob, local or at an fsspec address (`s3://`, `gs://`,
    `hf://`, `https://`). Names that begin with a dot are left out. With `format: dataset`, a name on the hub."""
    format: str = "auto"
    """`jsonl`, `json`, `csv`, `text` (one document per file), `parquet`, `arrow`, `mds` or `megatron`; `dataset`
    streams a dataset of the hub, or a local folder of one; `auto` goes by the file name."""
    pattern: str = "*"
    """In a folder, the file names to read, as a glob."""
    text_field: str = "text"
    """The field of a record that holds the text."""
    where: dict[str, str] = field(default_factory=dict)
    """Keep only records whose fields equal these values (numbers, true and false as JSON writes them)."""
    token_field: str | None = None
    """The field that holds token ids, for records that are already tokenized; replaces text_field."""
    mask_field: str | None = None
    """The field that says which of those tokens are trained on: a list of true and false, or of 1 and 0."""
    boundary_field: str | None = None
    """The field that says where the documents in those tokens are: their ends, pairs of start and end, or
    objects with `end`. Null: one document per record."""
    group_by: list[str] = field(default_factory=list)
    """Join the records of a file that are equal in these fields into one document."""
    group_separator: str = "\n\n"
    """Text between joined records."""
    split: str | None = None
    """Which split to read of a saved dataset, or of one on the hub. Null: the only one."""
    subset: str | None = None
    """Which configuration to read of a dataset on the hub."""
    revision: str | None = None
    """Which revision to read of a dataset on the hub. Null: the newest."""
    strict: bool = False
    """Stop at the first bad record, instead of skipping and counting it."""
    max_bad_fraction: float = 0.05
    """Stop if more than this share of the records is bad, from 0 to 1. The first hundred bad ones never stop
    anything."""
    storage_options: dict[str, Any] = field(default_factory=dict)
    """What fsspec needs to open the path, such as `{anon: true}`. Keys and passwords go in its own
    environment variables."""
    min_document_tokens: int | None = number(None, 1, 2**63 - 1)
    """Documents of this source with fewer tokens are not packed. Null: `data.min_document_tokens`."""
    upsample_from_tokens: int = number(0, 0, 2**63 - 1)
    """With keep_short_fraction: documents of at least this many tokens are all kept for training. 0: no upsampling."""
    keep_short_fraction: float = number(1.0, 0, 1)
    """Share of the shorter documents that are kept for training, chosen at random."""

    def problems(self, key: str) -> Iterator[Problem]:
        """Paths that are not there, and options that contradict each other; `key` is `data.sources.NAME`."""
        if self.format != "dataset":
            yield from source_problems(f"{key}.path", self.path)
        for name, value, fix in option_problems(self):
            yield Problem(f"{key}.{name}", value, fix)
        if (self.upsample_from_tokens > 0) != (self.keep_short_fraction < 1):
            fix = "upsample_from_tokens and keep_short_fraction work only together: give both, such as 4096 and 0.1"
            yield Problem(f"{key}.upsample_from_tokens", self.upsample_from_tokens, fix)
