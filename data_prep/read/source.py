"""What a user says about one source of documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from data_prep.errors import DataError

FORMATS = ("auto", "jsonl", "text")


@dataclass(frozen=True)
class Source:
    """One source: where its documents lie and which part of each file is text.

    Attributes:
        name: names the source's folder in the store.
        path: a file, a folder (searched recursively) or a glob.
        format: `jsonl`, `text` (a file is a document), or `auto`: by file name.
        pattern: in a folder, the file names to read, as a glob.
        text_field: the JSON field that holds the text.
        where: keep only JSON records whose fields equal these values.

    Raises:
        DataError: a name that cannot be a folder's, an unknown format, or options that exclude
            each other.
    """

    name: str
    path: str
    format: str = "auto"
    pattern: str = "*"
    text_field: str = "text"
    where: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name or self.name.startswith(".") or any(character in self.name for character in "/\\\0"):
            raise DataError(f"source name {self.name!r} cannot be a folder's name: use letters, digits, - and _")
        if self.format not in FORMATS:
            raise DataError(f"source {self.name}: format={self.format!r} is not one of {', '.join(FORMATS)}")
        if self.format == "text" and self.where:
            raise DataError(f"source {self.name}: where={dict(self.where)} selects JSON records, but format=text")

    def options(self) -> dict[str, Any]:
        """The options that decide the documents and their tokens, apart from the files themselves."""
        return {
            "format": self.format,
            "pattern": self.pattern,
            "text_field": self.text_field,
            "where": dict(sorted(self.where.items())),
        }
