"""Token stores -> pack index."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.disk import only_writer, remove_partial, write_file, write_json
from data_prep.errors import DataError
from data_prep.pack.account import LAST_WINDOW, Ledger, account_for
from data_prep.pack.index import FORMAT_VERSION, MANIFEST, SPLITS, PackIndex, index_hash
from data_prep.pack.options import PackOptions
from data_prep.pack.pieces import Documents
from data_prep.pack.selection import TRAIN, enter_dropped, select_pieces
from data_prep.pack.windows import fill_windows, interleave, window_ends
from data_prep.store import TokenStore


@dataclass(frozen=True)
class BuiltIndex:
    """A finished index; `reused` says that it was there already, with the same options."""

    index: PackIndex
    reused: bool


def build_index(
    stores: Sequence[TokenStore], options: PackOptions, folder: Path, *, overwrite: bool = False
) -> BuiltIndex:
    """Pack the documents of all stores into windows, all sources together.

    The same stores and options give the same bytes.

    Args:
        overwrite: replace an index that was packed with other options or stores.

    Raises:
        DataError: stores of different tokenizers, an existing index that differs (names the fields), or a
            source of which no document would be trained on (of a sample, and with weight 0, it may be none).
    """
    _check_tokenizers(stores)
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
                return BuiltIndex(_with_places(existing, stores), reused=True)
            if not overwrite:
                raise DataError(
                    f"the pack index {folder} was packed with other options:\n"
                    + "\n".join(f"  - {difference}" for difference in differences)
                    + "\nSet overwrite=true to replace it (runs that used it cannot resume), or another data.index"
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


@dataclass(frozen=True)
class PackedSplit:
    """A split's windows and figures.

    Attributes:
        pieces: `PIECE_DTYPE` [pieces], window after window.
        window_ends: where each window ends in them, uint64 [windows].
        totals: figures of the split; `per_source`: of each source (see `account_for`).
    """

    pieces: np.ndarray
    window_ends: np.ndarray
    totals: dict[str, Any]
    per_source: list[dict[str, Any]]


def pack_split(
    documents: Documents,
    names: Sequence[str],
    options: PackOptions,
    split: str,
    *,
    total_documents: int,
    fractions: Mapping[str, float] | None = None,
) -> PackedSplit:
    """Choose, cut and place the documents of a split.

    Args:
        names: of the sources.
        total_documents: of all stores.
        fractions: of each source, the share that was read; default: all of it.

    Raises:
        DataError: a source of which nothing is left, or too little for the mixture.
    """
    tagged = options.tagged_sources(names)
    ledger = Ledger(len(names))
    chosen = select_pieces(
        documents, names, options, split, ledger, total_documents=total_documents, fractions=fractions or {}
    )
    filled = fill_windows(chosen, options, split, tagged)
    enter_dropped(ledger, LAST_WINDOW, filled.dropped, filled.pieces)
    totals, per_source = account_for(documents, filled.pieces, filled.windows, options, names, ledger, total_documents)
    pieces, ends = filled.pieces, window_ends(filled.windows)
    if options.interleave_chunk_tokens:
        seed = (split, options.seed)
        pieces, ends = interleave(pieces, filled.windows, options.interleave_chunk_tokens, *seed)
    return PackedSplit(pieces, ends, totals, per_source)


def _write_index(stores: Sequence[TokenStore], options: PackOptions, folder: Path) -> None:
    names = [store.source for store in stores]
    _check_names(names, options)
    documents, hashes = load_documents(stores)
    held_out = hashes < np.uint64(int(options.held_out_fraction * 2.0**64))
    if held_out.all():
        raise DataError(
            f"held_out_fraction={options.held_out_fraction} keeps all {len(documents)} documents for held_out and "
            "leaves none to train on: lower it"
        )
    samples = {store.source: store.manifest.get("sample") for store in stores}
    fractions = {name: sample["fraction"] for name, sample in samples.items() if sample is not None}
    wanted = [options.mixture.get(name, 1.0) > 0 and fractions.get(name, 1.0) == 1 for name in names]
    _check_held_out(documents, held_out, names, wanted, options.held_out_fraction)
    splits = {}
    accounts = {}
    for split, chosen in zip(SPLITS, (~held_out, held_out), strict=True):
        packed = pack_split(
            documents.select(chosen), names, options, split, total_documents=len(documents), fractions=fractions
        )
        if split == TRAIN and not len(packed.window_ends):
            raise DataError(
                "nothing is left to train on: "
                + "; ".join(f"{counts['tokens']:,} tokens {what}" for what, counts in packed.totals["dropped"].items())
            )
        if split == TRAIN:
            _check_trained_on(packed.per_source, names, wanted)
        files = {
            "pieces": write_file(folder / f"{split}.pieces.bin", packed.pieces.tobytes()),
            "windows": write_file(folder / f"{split}.windows.bin", packed.window_ends.tobytes()),
        }
        splits[split] = {**packed.totals, "files": files}
        accounts[split] = packed.per_source
    settings = asdict(options)
    manifest: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "window_tokens": settings.pop("window_tokens"),
        "end_of_document": settings.pop("end_of_document"),
        "seed": settings.pop("seed"),
        "options": settings,
        "stores": [_store_entry(store, folder) for store in stores],
        "splits": splits,
        "account": {
            store.source: {
                **store.manifest["counts"],
                "sample": samples[store.source],
                **{split: accounts[split][number] for split in SPLITS},
            }
            for number, store in enumerate(stores)
        },
    }
    write_json(folder / MANIFEST, {"index_hash": index_hash(manifest), **manifest})


def _check_tokenizers(stores: Sequence[TokenStore]) -> None:
    """Refuse stores whose ids mean different texts: a window's reader knows one vocabulary and one anchor."""
    made_with: dict[str, list[str]] = {}
    for store in stores:
        made_with.setdefault(store.tokenizer["hash"], []).append(f"{store.source} ({store.tokenizer['path']})")
    if len(made_with) > 1:
        groups = "; ".join(", ".join(names) for names in made_with.values())
        raise DataError(f"the token stores were made with different tokenizers: {groups}. Make them with one")


def _check_names(names: Sequence[str], options: PackOptions) -> None:
    for option, given in (("domain_tags", options.domain_tags), ("lengths", options.lengths)):
        if unknown := sorted(set(given) - set(names)):
            raise DataError(f"{option}: no source named {', '.join(unknown)}: the sources are {', '.join(names)}")


def _check_held_out(
    documents: Documents, held_out: np.ndarray, names: Sequence[str], wanted: Sequence[bool], fraction: float
) -> None:
    """Refuse a source that is in held_out entirely: a source should not be left out of training by accident."""
    for source, name in enumerate(names):
        mine = documents.source == source
        if wanted[source] and mine.any() and held_out[mine].all():
            raise DataError(
                f"source {name}: held_out_fraction={fraction} keeps all of its {int(mine.sum()):,} documents for "
                "held_out and leaves none to train on: lower it (0 holds nothing out), or leave the source out"
            )


def _check_trained_on(per_source: Sequence[dict[str, Any]], names: Sequence[str], wanted: Sequence[bool]) -> None:
    """Refuse a source of which everything was dropped on the way into windows."""
    for name, figures, is_wanted in zip(names, per_source, wanted, strict=True):
        if is_wanted and figures["documents_in"] and not figures["documents"]:
            reasons = ", ".join(f"{counts['documents']:,} {what}" for what, counts in figures["dropped"].items())
            raise DataError(
                f"source {name}: none of its {figures['documents_in']:,} documents is left to train on ({reasons}): "
                "change what drops them, or leave the source out"
            )


def _store_entry(store: TokenStore, folder: Path) -> dict[str, str]:
    path = Path(os.path.relpath(store.folder.resolve(), folder.resolve())).as_posix()
    return {"source": store.source, "path": path, "hash": store.hash}


def _with_places(index: PackIndex, stores: Sequence[TokenStore]) -> PackIndex:
    """The index with the current paths of its stores: they, or it, may have been moved."""
    entries = [_store_entry(store, index.folder) for store in stores]
    if entries == index.manifest["stores"]:
        return index
    write_json(index.folder / MANIFEST, {**index.manifest, "stores": entries})
    return PackIndex(index.folder)


def _differences(manifest: dict[str, Any], stores: Sequence[TokenStore], options: PackOptions) -> list[str]:
    """What the index was packed with that is different now, one line per difference."""
    found = []
    defaults = asdict(PackOptions(options.window_tokens))  # what an index without the option was packed with
    before = {**defaults, **manifest, **manifest["options"]}
    for name, value in asdict(options).items():
        if before[name] != value:
            found.append(f"{name}: packed with {before[name]!r}, now {value!r}")
    names = [entry["source"] for entry in manifest["stores"]]
    if names != [store.source for store in stores]:
        found.append(f"sources: packed with {', '.join(names)}, now {', '.join(store.source for store in stores)}")
    else:
        for entry, store in zip(manifest["stores"], stores, strict=True):
            if entry["hash"] != store.hash:
                found.append(f"sources.{store.source}: its token store was made anew from something else")
    return found
