"""Figures of the pack index: time per document, density, cuts, upsampling, mixture, reading windows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from anchorcontext.data.windows import PackedWindows
from benchmarks.corpora import log_uniform, make_store, web_lengths
from benchmarks.figures import Figure
from data_prep.pack import LengthRule, PackOptions, build_index
from data_prep.pack.bins import best_fit_decreasing
from data_prep.store import TokenStore

WINDOW = 65_536
LONG_WINDOW = 131_072
WEB_DOCUMENTS, BOOKS, REPOSITORIES = 985_000, 3_000, 12_000
READ_WINDOWS = 64
UPSAMPLE_FROM = 4096
MIXTURE_TOKENS = 400_000_000
_GOLDEN = ([8, 6, 6, 4, 3, 2, 3], [0, 1, 2, 3, 3, 1, 4])


def figures(folder: Path) -> Iterator[Figure]:
    """All figures."""
    draws = np.random.default_rng(1)
    web = make_store(folder, "web", web_lengths(WEB_DOCUMENTS))
    books = make_store(folder, "books", log_uniform(draws, 30_000, 250_000, BOOKS))
    repositories = make_store(folder, "repositories", log_uniform(draws, 8_192, 262_144, REPOSITORIES))
    bins = best_fit_decreasing(np.array(_GOLDEN[0]), 8).tolist()
    yield Figure("golden bins (1: as published)", float(bins == _GOLDEN[1]), "", at_least=1)
    yield from _mixed([web, books, repositories], folder)
    yield from _others([web, books, repositories], [repositories], folder)
    yield from _upsampling(web_lengths(WEB_DOCUMENTS), folder)
    yield from _mixture([web, books, repositories], folder)
    yield from _reading(folder)


def _mixed(stores: list[TokenStore], folder: Path) -> Iterator[Figure]:
    documents = sum(store.num_documents for store in stores)
    tokens = sum(store.num_tokens for store in stores)
    began = time.process_time()
    index = build_index(stores, PackOptions(WINDOW), folder / "mixed").index
    spent = time.process_time() - began
    train = index.manifest["splits"]["train"]
    what = f"{documents:,} documents, {tokens / 1e9:.2f}B tokens, {WINDOW:,}"
    yield Figure(f"index, CPU time a document ({what})", spent / documents * 1e6, "us", at_most=5)
    yield Figure("density, web + books + repositories", train["density"], "%", at_least=0.9999)
    yield Figure("documents cut that would have fitted", train["needlessly_cut"], "", at_most=0)


def _others(stores: list[TokenStore], long: list[TokenStore], folder: Path) -> Iterator[Figure]:
    index = build_index(long, PackOptions(WINDOW), folder / "long").index
    density = index.manifest["splits"]["train"]["density"]
    yield Figure("density, repositories alone (8,192 to 262,144 tokens)", density, "%", at_least=0.995)
    for algorithm in ("first_fit", "concat_and_chop", "one_document"):
        train = build_index(stores, PackOptions(WINDOW, algorithm=algorithm), folder / algorithm).index
        counts = train.manifest["splits"]["train"]
        yield Figure(f"density, {algorithm}", counts["density"], "%")
        if counts["needlessly_cut"]:
            cut = counts["needlessly_cut"] / counts["documents"]
            yield Figure(f"documents cut that would have fitted, {algorithm}", cut, "%")


def _upsampling(lengths: np.ndarray, folder: Path) -> Iterator[Figure]:
    """Upsampling raises the share of long tokens from 0.3 to 0.3 / (0.3 + 0.7 * 0.1) = 0.811."""
    is_long = lengths >= UPSAMPLE_FROM
    long_tokens = np.where(is_long, lengths, 0)
    enough = np.cumsum(long_tokens) <= 0.3 / 0.7 * lengths[~is_long].sum()
    store = make_store(folder, "third", lengths[~is_long | enough])
    rule = LengthRule(upsample_from_tokens=UPSAMPLE_FROM, keep_short_fraction=0.1)
    index = build_index([store], PackOptions(WINDOW, lengths={"third": rule}), folder / "upsampled").index
    counts = index.manifest["account"]["third"]["train"]
    long = sum(counts["lengths"]["tokens_in"][UPSAMPLE_FROM.bit_length() - 1 :])
    name = f"share of long tokens after upsampling (before: {long / counts['tokens_in']:.3f})"
    yield Figure(name, long / counts["tokens"], "", at_least=0.801, at_most=0.821)


def _mixture(stores: list[TokenStore], folder: Path) -> Iterator[Figure]:
    weights = {"web": 0.5, "books": 0.2, "repositories": 0.3}
    options = PackOptions(WINDOW, mixture=weights, total_tokens=MIXTURE_TOKENS)
    index = build_index(stores, options, folder / "mixture").index
    misses = [
        abs(figures_of["train"]["tokens"] - figures_of["train"]["share"]["target_tokens"])
        for figures_of in index.manifest["account"].values()
    ]
    yield Figure("mixture: the source farthest from its target", max(misses), "tokens", at_most=WINDOW)


def _reading(folder: Path) -> Iterator[Figure]:
    store = make_store(folder, "read", web_lengths(10_000, seed=2), filled=True)
    build_index([store], PackOptions(LONG_WINDOW, held_out_fraction=0.0), folder / "read_index")
    windows = PackedWindows(folder / "read_index")
    count = min(READ_WINDOWS, len(windows))
    for number in range(count):  # from here on the store is warm
        windows[number]
    spent = []
    for number in range(count):
        began = time.perf_counter()
        windows[number]
        spent.append(time.perf_counter() - began)
    pieces = int(windows.manifest["splits"]["train"]["pieces"] / len(windows))
    name = f"reading a window of {LONG_WINDOW:,} (about {pieces} pieces), median of {count}"
    yield Figure(name, float(np.median(spent)) * 1e3, "ms", at_most=1)
