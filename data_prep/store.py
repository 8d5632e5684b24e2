"""The token store: the tokens of one source, its documents concatenated, without BOS or EOS.

A folder with `manifest.json`, `files.jsonl` (the input files, or parts of large ones, one per line),
`skipped.jsonl` (records that were not documents) and, for each shard i, little-endian:

- `{i:05d}.tokens.bin`  uint16, or uint32 where an id needs it;
- `{i:05d}.ends.bin`    uint64, where each document ends, in tokens from the beginning of the shard;
- `{i:05d}.table.bin`   int64 triple per document: line of `files.jsonl` (from 0), line there (1-based,
  from the beginning of the part of a file that it names; 0: the whole file), bytes of its UTF-8 text (0:
  it came as tokens);
- `{i:05d}.hashes.bin`  uint64 per document, BLAKE2b of its UTF-8 text (of its ids as uint32, if it came as
  tokens);
- `{i:05d}.mask.bin`    uint8 per token, 1 if it is trained on; only if a document came with a mask.

The manifest, with sizes and checksums of all of them, is written last: a folder without one is not a
store yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.disk import digest_json, read_json
from data_prep.errors import DataError

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
FILES = "files.jsonl"
SKIPPED = "skipped.jsonl"
KINDS = ("tokens", "ends", "table", "hashes")
MASK = "mask"
TABLE_COLUMNS = ("file", "line", "bytes")
_NEEDED = {"source", "tokenizer", "dtype", "options", "counts", "lists", "shards", "hash"}


def shard_file(number: int, kind: str) -> str:
    """The name of one file of a shard; `kind` is one of `KINDS`, or `MASK`."""
    return f"{number:05d}.{kind}.bin"


def store_hash(manifest: Mapping[str, Any]) -> str:
    """What identifies a store: its tokens, documents and tokenizer, but not where its files lie."""
    tokenizer = {key: value for key, value in manifest["tokenizer"].items() if key != "path"}
    shards = [shard["files"] for shard in manifest["shards"]]
    return digest_json([manifest["format_version"], manifest["source"], tokenizer, manifest["dtype"], shards])


class TokenStore:
    """Reads one source's token store; nothing is loaded before it is asked for.

    Args:
        folder: the store of one source.

    Raises:
        DataError: no finished store there, another format version, or files of other sizes than
            the manifest says.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / MANIFEST).is_file():
            raise DataError(f"no token store in {self.folder}: make it with `anchorcontext pack`")
        self.manifest: dict[str, Any] = read_json(self.folder / MANIFEST)
        if self.manifest.get("format_version") != FORMAT_VERSION:
            raise DataError(
                f"the token store {self.folder} has format version {self.manifest.get('format_version')}, this is "
                f"version {FORMAT_VERSION}: make it anew with `anchorcontext pack overwrite=true`"
            )
        if lacking := sorted(_NEEDED - self.manifest.keys()):
            raise DataError(
                f"{self.folder / MANIFEST} lacks {', '.join(lacking)}: make the store anew with "
                "`anchorcontext pack overwrite=true`"
            )
        self.source: str = self.manifest["source"]
        self.tokenizer: dict[str, Any] = self.manifest["tokenizer"]
        self.hash: str = self.manifest["hash"]
        self._check_sizes()

    @property
    def num_shards(self) -> int:
        return len(self.manifest["shards"])

    @property
    def num_documents(self) -> int:
        return self.manifest["counts"]["documents"]

    @property
    def num_tokens(self) -> int:
        return self.manifest["counts"]["tokens"]

    def tokens(self, shard: int) -> np.ndarray:
        """The shard's token ids, memory-mapped, [tokens of the shard]."""
        return self._map(shard, "tokens", self.manifest["dtype"])

    def ends(self, shard: int) -> np.ndarray:
        """Where each document of the shard ends, in tokens, uint64 [documents]."""
        return self._map(shard, "ends", "<u8")

    def table(self, shard: int) -> np.ndarray:
        """Origin of each document of the shard, int64 [documents, 3]: `TABLE_COLUMNS`."""
        return self._map(shard, "table", "<i8").reshape(-1, len(TABLE_COLUMNS))

    def text_hashes(self, shard: int) -> np.ndarray:
        """A hash of each document's text, uint64 [documents]; equal for equal texts."""
        return self._map(shard, "hashes", "<u8")

    @property
    def has_masks(self) -> bool:
        """Whether any shard says which of its tokens are trained on."""
        return any(MASK in shard["files"] for shard in self.manifest["shards"])

    def mask(self, shard: int) -> np.ndarray | None:
        """Which of the shard's tokens are trained on, memory-mapped bool [tokens]; None: all of them."""
        if MASK not in self.manifest["shards"][shard]["files"]:
            return None
        return self._map(shard, MASK, "?")

    def origin(self, document: int) -> tuple[str, int]:
        """The input file and line (0: the whole file) of a document, by its number in the source.

        Raises:
            IndexError: no such document.
        """
        for shard, entry in enumerate(self.manifest["shards"]):
            if document < entry["documents"]:
                number, line, _ = self.table(shard)[document].tolist()
                name, lines_before = self._inputs[number]
                return name, lines_before + line
            document -= entry["documents"]
        raise IndexError(f"the store {self.folder} has {self.num_documents} documents")

    @cached_property
    def _inputs(self) -> list[tuple[str, int]]:
        """The name of each input, and the lines of its file that are before it."""
        entries = map(json.loads, (self.folder / FILES).read_text(encoding="utf-8").splitlines())
        return [(entry["name"], entry.get("lines_before", 0)) for entry in entries]

    def _map(self, shard: int, kind: str, dtype: str) -> np.ndarray:
        path = self.folder / shard_file(shard, kind)
        if path.stat().st_size == 0:  # an empty file cannot be mapped
            return np.empty(0, dtype=dtype)
        return np.memmap(path, dtype=dtype, mode="r")

    def _check_sizes(self) -> None:
        written = {FILES: self.manifest["lists"][FILES]}
        for number, shard in enumerate(self.manifest["shards"]):
            written |= {shard_file(number, kind): entry for kind, entry in shard["files"].items()}
        for name, entry in written.items():
            path = self.folder / name
            size = path.stat().st_size if path.is_file() else None
            if size != entry["bytes"]:
                raise DataError(
                    f"{path} has {'no file' if size is None else f'{size} bytes'} where the manifest says "
                    f"{entry['bytes']}: make the store anew with `anchorcontext pack overwrite=true`"
                )
