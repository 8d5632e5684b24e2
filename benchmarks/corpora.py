"""Synthetic token stores with given document lengths, on which the pack index is measured."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from anchorcontext.data.length_mixes import WEB_HISTOGRAM
from data_prep.disk import write_file, write_json
from data_prep.store import FILES, FORMAT_VERSION, MANIFEST, TokenStore, shard_file, store_hash


def log_uniform(draws: np.random.Generator, low: float, high: float, count: int) -> np.ndarray:
    """Log-uniform integers from `low` to `high`."""
    return np.minimum(low * ((high + 1) / low) ** draws.random(count), high).astype(np.int64)


def web_lengths(count: int, seed: int = 0) -> np.ndarray:
    """Document lengths of the published web histogram (see `anchorcontext.data.length_mixes`)."""
    draws = np.random.default_rng(seed)
    weights = np.array([number for _, _, number in WEB_HISTOGRAM], dtype=np.float64)
    chosen = draws.choice(len(WEB_HISTOGRAM), count, p=weights / weights.sum())
    low, high = (np.array([row[side] for row in WEB_HISTOGRAM], dtype=np.float64)[chosen] for side in (0, 1))
    return np.minimum(low * ((high + 1) / low) ** draws.random(count), high).astype(np.int64)


def make_store(folder: Path, name: str, lengths: np.ndarray, *, filled: bool = False) -> TokenStore:
    """A store with one shard of documents of these lengths.

    Args:
        filled: write token ids; otherwise the token file has the right size but no content, which is
            enough for an index.
    """
    target = folder / name
    target.mkdir(parents=True)
    total = int(lengths.sum())
    draws = np.random.default_rng(len(lengths))
    hashes = [hashlib.blake2b(f"{name}{number}".encode(), digest_size=8).digest() for number in range(len(lengths))]
    contents: dict[str, bytes] = {
        "ends": np.cumsum(lengths).astype("<u8").tobytes(),
        "table": np.stack([np.zeros_like(lengths), np.arange(len(lengths)) + 1, 4 * lengths], axis=1)
        .astype("<i8")
        .tobytes(),
        "hashes": b"".join(hashes),
    }
    for kind, data in contents.items():
        (target / shard_file(0, kind)).write_bytes(data)
    with open(target / shard_file(0, "tokens"), "wb") as file:
        if filled:
            file.write(draws.integers(2, 50_000, total, dtype=np.uint16).tobytes())
        file.truncate(2 * total)
    files = {kind: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for kind, data in contents.items()}
    files["tokens"] = {"bytes": 2 * total, "sha256": ""}
    manifest: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "source": name,
        "tokenizer": {"path": "", "hash": "", "vocab_size": 50_000, "anchor_id": 0, "anchor_token": "", "eos_id": 1},
        "dtype": "<u2",
        "options": {},
        "lists": {FILES: write_file(target / FILES, b'{"name": "made up"}\n')},
        "counts": {"documents": len(lengths), "tokens": total, "skipped": {}},
        "shards": [{"documents": len(lengths), "tokens": total, "files": files}],
    }
    write_json(target / MANIFEST, {**manifest, "hash": store_hash(manifest)})
    return TokenStore(target)
