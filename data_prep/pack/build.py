"""Token stores -> pack index."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.disk import only_writer, remove_partial, write_file, write_json
from data_prep.errors import DataError
from data_prep.pack.account import account_for
from data_prep.pack.bins import best_fit_decreasing
from data_prep.pack.index import FORMAT_VERSION, MANIFEST, SPLITS, PackIndex, index_hash
from data_prep.pack.pieces import Documents, cut_pieces, piece_rows
from data_prep.permutation import seeded_keys, seeded_permutation
from data_prep.store import TokenStore

END_OF_DOCUMENT = ("eos", "none")
_MIN_WINDOW_TOKENS = 4


@dataclass(frozen=True)
class PackOptions:
    """How windows are made.

    Attributes:
        window_tokens: rows of a window, anchors and end-of-document rows included.
        end_of_document: `eos` ends every document's last piece with the EOS row; `none` does not.
        held_out_fraction: share of documents, chosen by a hash of their text, for `held_out`.
        seed: of the order of windows, and of pieces in a window.

    Raises:
        DataError: a value out of range.
    """

    window_tokens: int
    end_of_document: str = "eos"
    held_out_fraction: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        if self.window_tokens < _MIN_WINDOW_TOKENS:
            raise DataError(
                f"window_tokens={self.window_tokens}: a window holds at least {_MIN_WINDOW_TOKENS} rows "
                "(anchor, two tokens, end of document)"
            )
        if self.end_of_document not in END_OF_DOCUMENT:
            raise DataError(f"end_of_document={self.end_of_document!r} is not one of {', '.join(END_OF_DOCUMENT)}")
        if not 0 <= self.held_out_fraction < 1:
            raise DataError(f"held_out_fraction={self.held_out_fraction} is not in 0 <= fraction < 1")


@dataclass(frozen=True)
class BuiltIndex:
    """A finished index; `reused` says that it was there already, with the same options."""

    index: PackIndex
    reused: bool


def build_index(
    stores: Sequence[TokenStore], options: PackOptions, folder: Path, *, overwrite: bool = False
) -> BuiltIndex:
    """Pack the documents of all stores into windows, best-fit decreasing over all of them.

    The same stores and options give the same bytes.

    Args:
        overwrite: replace an index that was packed with other options or stores.

    Raises:
        DataError: an existing index that differs (names the fields), or no document for training.
    """
    with only_writer(folder):
        if (folder / MANIFEST).is_file():
            try:
                existing = PackIndex(folder)
                differences = _differences(existing.manifest, stores, options)
            except DataError as error:  # damaged, or of another format version
                if not overwrite:
                    raise
                differences = [str(error)]
            if not differences:
                return BuiltIndex(existing, reused=True)
            if not overwrite:
                raise DataError(
                    f"the pack index {folder} was packed with other options:\n"
                    + "\n".join(f"  - {difference}" for difference in differences)
                    + "\nSet overwrite=true to replace it (runs that used it cannot go on), or another data.index"
                )
            (folder / MANIFEST).unlink()  # first, so that no half of an index looks whole
        remove_partial(folder)
        _write_index(stores, options, folder)
        return BuiltIndex(PackIndex(folder), reused=False)


def load_documents(stores: Sequence[TokenStore]) -> tuple[Documents, np.ndarray]:
    """Every document of the stores, and a hash of its text, uint64 [documents]."""
    columns: dict[str, list[np.ndarray]] = {name: [] for name in ("source", "shard", "start", "length", "hash")}
    for source, store in enumerate(stores):
        for shard in range(store.num_shards):
            ends = np.asarray(store.ends(shard), dtype=np.int64)
            starts = np.concatenate(([0], ends))[:-1]
            columns["source"].append(np.full(len(ends), source, dtype=np.uint32))
            columns["shard"].append(np.full(len(ends), shard, dtype=np.uint32))
            columns["start"].append(starts)
            columns["length"].append(ends - starts)
            columns["hash"].append(np.asarray(store.text_hashes(shard)))
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    hashes = joined.pop("hash")
    return Documents(**joined, number=np.arange(len(hashes), dtype=np.uint64)), hashes


def make_windows(documents: Documents, options: PackOptions, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Pieces in window order, and where each window ends in them, uint64 [windows].

    Windows, and the pieces within each, are shuffled: best-fit decreasing alone would put the
    longest piece at the begin of every window, and short ones only far behind.
    """
    pieces = cut_pieces(documents, options.window_tokens, options.end_of_document)
    bins = best_fit_decreasing(piece_rows(pieces, options.end_of_document), options.window_tokens)
    num_windows = int(bins.max()) + 1 if len(bins) else 0
    windows = seeded_permutation(num_windows, "windows", split, options.seed)[bins]
    order = np.lexsort((seeded_keys(len(pieces), "pieces", split, options.seed), windows))
    return pieces[order], np.cumsum(np.bincount(windows, minlength=num_windows)).astype("<u8")


def _write_index(stores: Sequence[TokenStore], options: PackOptions, folder: Path) -> None:
    documents, hashes = load_documents(stores)
    held_out = hashes < np.uint64(int(options.held_out_fraction * 2.0**64))
    if held_out.all():
        raise DataError(
            f"held_out_fraction={options.held_out_fraction} keeps all {len(documents)} documents for held_out and "
            "leaves none to train on: lower it"
        )
    splits = {}
    accounts = {}
    for split, chosen in zip(SPLITS, (~held_out, held_out), strict=True):
        selected = documents.select(chosen)
        pieces, window_ends = make_windows(selected, options, split)
        files = {
            "pieces": write_file(folder / f"{split}.pieces.bin", pieces.tobytes()),
            "windows": write_file(folder / f"{split}.windows.bin", window_ends.tobytes()),
        }
        rows = piece_rows(pieces, options.end_of_document)
        totals, accounts[split] = account_for(selected, pieces, rows, window_ends, options.window_tokens, len(stores))
        splits[split] = {**totals, "files": files}
    settings = asdict(options)
    manifest: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "window_tokens": settings.pop("window_tokens"),
        "end_of_document": settings.pop("end_of_document"),
        "seed": settings.pop("seed"),
        "options": {"algorithm": "best_fit_decreasing", **settings},
        "stores": [_store_entry(store, folder) for store in stores],
        "splits": splits,
        "account": {
            store.source: {**store.manifest["counts"], **{split: accounts[split][number] for split in SPLITS}}
            for number, store in enumerate(stores)
        },
    }
    write_json(folder / MANIFEST, {"index_hash": index_hash(manifest), **manifest})


def _store_entry(store: TokenStore, folder: Path) -> dict[str, str]:
    path = Path(os.path.relpath(store.folder.resolve(), folder.resolve())).as_posix()
    return {"source": store.source, "path": path, "hash": store.hash}


def _differences(manifest: dict[str, Any], stores: Sequence[TokenStore], options: PackOptions) -> list[str]:
    """What the index was packed with that is otherwise now, a line each."""
    found = []
    before = {**manifest, **manifest["options"]}
    for name, value in asdict(options).items():
        if before.get(name) != value:
            found.append(f"{name}: packed with {before.get(name)!r}, now {value!r}")
    names = [entry["source"] for entry in manifest["stores"]]
    if names != [store.source for store in stores]:
        found.append(f"sources: packed with {', '.join(names)}, now {', '.join(store.source for store in stores)}")
    else:
        for entry, store in zip(manifest["stores"], stores, strict=True):
            if entry["hash"] != store.hash:
                found.append(f"sources.{store.source}: its token store was made anew from something else")
    return found
