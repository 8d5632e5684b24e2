"""One file of a source, as it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class InputFile:
    """One file to read, or a part of one.

    Attributes:
        number: its place among the source's files.
        path: where it lies now.
        name: its path below the source's folder, with forward slashes; the same after a move.
        format: one of `FORMATS`, but for `auto`.
        num_bytes: size in storage, compressed where it is; with a span, the span's.
        mtime_ns: time of its last change; 0 where that is unknown.
        span: the part of the file that is meant, in bytes from its begin; None: all of it. Parts
            come from `split_file`, and lines are counted from their begin.
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
        """What tells the file, or the part of it, from another version of it, wherever it lies."""
        fields = {"name": self.name, "format": self.format, "num_bytes": self.num_bytes, "mtime_ns": self.mtime_ns}
        optional = {
            "span": None if self.span is None else list(self.span),
            "version": self.version or None,
            "sample": None if self.sample == 1 else self.sample,
        }
        return fields | {name: value for name, value in optional.items() if value is not None}
