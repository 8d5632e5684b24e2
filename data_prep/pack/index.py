"""The pack index: which pieces make up each window of each split. No tokens are copied.

A folder with `manifest.json` and, a split, little-endian:

- `{split}.pieces.bin`   records of `pieces.PIECE_DTYPE`, window after window;
- `{split}.windows.bin`  uint64, where each window ends, in pieces.

The manifest is written last. Paths of stores are relative to the folder, so that index and stores
can be moved together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.disk import digest_json, read_json
from data_prep.errors import DataError
from data_prep.pack.pieces import PIECE_DTYPE, piece_rows, prefix_rows
from data_prep.store import TokenStore

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
SPLITS = ("train", "held_out")
INDEX_FILES = (MANIFEST, *(f"{split}.{kind}.bin" for split in SPLITS for kind in ("pieces", "windows")))
"""The names of an index's files."""


def index_hash(manifest: Mapping[str, Any]) -> str:
    """What identifies an index: everything its windows depend on, but not its path."""
    stores = [[store["source"], store["hash"]] for store in manifest["stores"]]
    files = [manifest["splits"][split]["files"] for split in SPLITS]
    options = [manifest[key] for key in ("format_version", "window_tokens", "end_of_document", "options", "seed")]
    return digest_json([options, stores, files])


class PackIndex:
    """Reads a pack index.

    Args:
        folder: the index.

    Raises:
        DataError: no finished index there, another format version, or files of other sizes than
            the manifest says.

    Attributes:
        tag_ids: the domain tag's token id, by source number; empty without tags.
        num_documents: of all stores. A piece's document number is its document's, plus a multiple of
            this where the mixture repeats the document.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / MANIFEST).is_file():
            raise DataError(f"no pack index in {self.folder}: the data is not packed. Run `anchorcontext pack` first")
        self.manifest: dict[str, Any] = read_json(self.folder / MANIFEST)
        if self.manifest.get("format_version") != FORMAT_VERSION:
            raise DataError(
                f"the pack index {self.folder} has format version {self.manifest.get('format_version')}, this is "
                f"version {FORMAT_VERSION}: pack again with `anchorcontext pack overwrite=true`"
            )
        self.hash: str = self.manifest["index_hash"]
        self.window_tokens: int = self.manifest["window_tokens"]
        self.end_of_document: str = self.manifest["end_of_document"]
        names = [store["source"] for store in self.manifest["stores"]]
        tags: dict[str, int] = self.manifest["options"].get("domain_tags", {})
        self.tag_ids = {names.index(name): token for name, token in tags.items()}
        self.num_documents: int = sum(counts["documents"] for counts in self.manifest["account"].values())
        self._check_sizes()

    def pieces(self, split: str) -> np.ndarray:
        """Pieces of a split, window after window, memory-mapped, `PIECE_DTYPE` [pieces]."""
        return self._map(split, "pieces", PIECE_DTYPE)

    def window_ends(self, split: str) -> np.ndarray:
        """Where each window of a split ends, in pieces, uint64 [windows]."""
        return self._map(split, "windows", np.dtype("<u8"))

    def prefix_rows(self, pieces: np.ndarray) -> np.ndarray:
        """Rows before each piece's tokens, int64 [pieces]: anchor and domain tag; none before an inner chunk."""
        return prefix_rows(pieces, tuple(self.tag_ids))

    def piece_rows(self, pieces: np.ndarray) -> np.ndarray:
        """Rows of each piece in its window, int64 [pieces]."""
        return piece_rows(pieces, self.end_of_document, tuple(self.tag_ids))

    def open_stores(self) -> list[TokenStore]:
        """The token stores that the pieces point into, in the order of their numbers.

        Raises:
            DataError: a store that is gone, or that was made anew from something else.
        """
        stores = []
        for entry in self.manifest["stores"]:
            if not (self.folder / entry["path"]).is_dir():
                raise DataError(
                    f"no token store in {self.folder / entry['path']}, where the index {self.folder} has it. "
                    "Move an index together with its stores; or run `anchorcontext pack` with data.store and "
                    "data.index as they lie now"
                )
            store = TokenStore(self.folder / entry["path"])
            if store.hash != entry["hash"]:
                raise DataError(
                    f"the token store {store.folder} was made anew since {self.folder} was packed (its hash was "
                    f"{entry['hash'][:12]}, now {store.hash[:12]}): pack again with `anchorcontext pack overwrite=true`"
                )
            stores.append(store)
        return stores

    def _map(self, split: str, kind: str, dtype: np.dtype) -> np.ndarray:
        path = self.folder / f"{split}.{kind}.bin"
        if path.stat().st_size == 0:  # an empty file cannot be mapped
            return np.empty(0, dtype=dtype)
        return np.memmap(path, dtype=dtype, mode="r")

    def _check_sizes(self) -> None:
        for split in SPLITS:
            for kind, written in self.manifest["splits"][split]["files"].items():
                path = self.folder / f"{split}.{kind}.bin"
                size = path.stat().st_size if path.is_file() else None
                if size != written["bytes"]:
                    raise DataError(
                        f"{path} has {'no file' if size is None else f'{size} bytes'} where the manifest says "
                        f"{written['bytes']}: pack again with `anchorcontext pack overwrite=true`"
                    )
