"""Whether stores and indexes on the disk are what they were when they were made: every byte, every rule."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.errors import DataError
from data_prep.pack.index import SPLITS, PackIndex, index_hash
from data_prep.pack.pieces import ENDS_DOCUMENT, STARTS_DOCUMENT
from data_prep.store import MANIFEST, MASK, TokenStore, shard_file, store_hash

OnBytes = Callable[[int], None]
_BLOCK_BYTES = 1 << 22
_DAMAGED = (KeyError, TypeError, AttributeError, IndexError, ValueError)
"""What a manifest raises that lacks something, or has something else in its place."""


def verify_store(folder: str | Path, on_bytes: OnBytes = lambda num_bytes: None) -> list[str]:
    """Read a token store to its last byte.

    Args:
        on_bytes: told of every block read; `store_bytes` says how many there are.

    Returns:
        What is wrong, one sentence per problem, with the file's name; empty for a sound store.
    """
    try:
        return _store_problems(TokenStore(folder), on_bytes)
    except DataError as error:
        return [str(error)]
    except _DAMAGED as error:
        return [f"{Path(folder) / MANIFEST} is damaged: {error!r}"]


def _store_problems(store: TokenStore, on_bytes: OnBytes) -> list[str]:
    problems = []
    if store_hash(store.manifest) != store.hash:
        problems.append(f"{store.folder}: its manifest has been changed: its hash is not that of its contents")
    for name, written in store.manifest["lists"].items():
        problems += _checksum(store.folder / name, written, on_bytes)
    shards = store.manifest["shards"]
    for name in ("documents", "tokens", "text_bytes"):
        if store.manifest["counts"][name] != sum(shard[name] for shard in shards):
            problems.append(f"{store.folder}: its manifest counts {name} otherwise in all than shard by shard")
    for number, shard in enumerate(shards):
        for kind, written in shard["files"].items():
            problems += _checksum(store.folder / shard_file(number, kind), written, on_bytes)
        problems += [f"{store.folder / shard_file(number, 'tokens')}: {found}" for found in _shard(store, number)]
    return problems


def verify_index(folder: str | Path, on_bytes: OnBytes = lambda num_bytes: None) -> list[str]:
    """Read a pack index to its last byte, and compare its pieces with the stores' documents.

    The stores' own bytes are `verify_store`'s.

    Returns:
        What is wrong, one sentence per problem; empty for a sound index.
    """
    try:
        return _index_problems(PackIndex(folder), on_bytes)
    except DataError as error:
        return [str(error)]
    except _DAMAGED as error:
        return [f"{Path(folder) / MANIFEST} is damaged: {error!r}"]


def _index_problems(index: PackIndex, on_bytes: OnBytes) -> list[str]:
    stores = index.open_stores()
    problems = []
    if index_hash(index.manifest) != index.hash:
        problems.append(f"{index.folder}: its manifest has been changed: its hash is not that of its contents")
    for split in SPLITS:
        for kind, written in index.manifest["splits"][split]["files"].items():
            problems += _checksum(index.folder / f"{split}.{kind}.bin", written, on_bytes)
        problems += [f"{index.folder}, split {split}: {found}" for found in _split(index, split, stores)]
    return problems


def store_bytes(folder: str | Path) -> int:
    """How many bytes `verify_store` reads."""
    manifest = TokenStore(folder).manifest
    files = [manifest["lists"], *(shard["files"] for shard in manifest["shards"])]
    return sum(written["bytes"] for of in files for written in of.values())


def _checksum(path: Path, written: Mapping[str, Any], on_bytes: OnBytes) -> Iterator[str]:
    if not path.is_file():
        yield f"{path} is missing"
        return
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            on_bytes(len(block))
    if digest.hexdigest() != written["sha256"]:
        yield f"{path} is not what was written: its checksum differs"


def _shard(store: TokenStore, number: int) -> Iterator[str]:
    shard = store.manifest["shards"][number]
    tokens, ends = store.tokens(number), store.ends(number).astype(np.int64)
    if len(tokens) != shard["tokens"]:
        yield f"{len(tokens)} tokens where the manifest says {shard['tokens']}"
    if not len(ends) == len(store.table(number)) == len(store.text_hashes(number)) == shard["documents"]:
        yield f"ends, table and hashes are not of {shard['documents']} documents each"
    lengths = np.diff(ends, prepend=0)
    if (len(ends) and (lengths <= 0).any()) or (ends[-1] if len(ends) else 0) != len(tokens):
        yield "the documents' ends do not divide its tokens"
    block = _BLOCK_BYTES // tokens.dtype.itemsize
    largest = max((int(tokens[at : at + block].max()) for at in range(0, len(tokens), block)), default=0)
    if largest >= store.tokenizer["vocab_size"]:
        yield f"token id {largest} of a vocabulary of {store.tokenizer['vocab_size']}"
    if MASK in shard["files"] and shard["files"][MASK]["bytes"] != len(tokens):
        yield f"a mask of {shard['files'][MASK]['bytes']} tokens"


def _split(index: PackIndex, split: str, stores: list[TokenStore]) -> Iterator[str]:
    pieces, ends = index.pieces(split), index.window_ends(split).astype(np.int64)
    if (np.diff(ends, prepend=0) <= 0).any() or (ends[-1] if len(ends) else 0) != len(pieces):
        yield "the windows' ends do not divide its pieces"
        return
    rows = np.concatenate(([0], np.cumsum(index.piece_rows(pieces))))
    rows_of_windows = np.diff(rows[ends], prepend=0)
    if len(ends) and rows_of_windows.max() > index.window_tokens:
        yield f"window {rows_of_windows.argmax()} has {rows_of_windows.max()} rows of {index.window_tokens}"
    order = np.lexsort((pieces["shard"], pieces["source"]))
    places = pieces[["source", "shard"]][order]
    changes = np.flatnonzero(places[1:] != places[:-1]) + 1
    edges = [0, *changes.tolist(), len(places)] if len(places) else []
    for begin, end in itertools.pairwise(edges):
        source, shard = places[begin].tolist()
        if source >= len(stores) or shard >= stores[source].num_shards:
            yield f"piece {order[begin]} is of source {source}, shard {shard}, which there is none"
            continue
        chosen = order[begin:end]
        for wrong in _outside(pieces[chosen], stores[source].ends(shard).astype(np.int64)):
            yield f"piece {chosen[wrong]} is not of one document of {stores[source].source}, shard {shard}"


def _outside(pieces: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The first of a shard's pieces, if any, that crosses its document's ends or has a wrong flag."""
    starts = np.concatenate(([0], ends))[:-1]
    begin = pieces["start"].astype(np.int64)
    end = begin + pieces["length"].astype(np.int64)
    if not len(ends):
        return np.arange(len(pieces))[:1]
    document = np.minimum(np.searchsorted(ends, begin, side="right"), len(ends) - 1)
    bad = (begin < starts[document]) | (end > ends[document])
    bad |= ((pieces["flags"] & STARTS_DOCUMENT) != 0) & (begin != starts[document])
    bad |= ((pieces["flags"] & ENDS_DOCUMENT) != 0) & (end != ends[document])
    return np.flatnonzero(bad)[:1]
