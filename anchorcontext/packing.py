"""Packing: sources -> token stores -> pack index, and the report of what became of every document.

Called again with the same options, `pack` finds everything done; with another window length, seed or
held-out fraction (and another `data.index`) it reuses the stores and takes seconds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorcontext import progress
from anchorcontext.config.schema import BalanceConfig, DataConfig
from anchorcontext.machine import usable_cores
from anchorcontext.progress import OnProgress
from data_prep.disk import only_writer, remove_partial, write_file
from data_prep.pack import INDEX_FILES, BuiltIndex, LengthRule, PackOptions, build_index
from data_prep.read import Source, check_apart
from data_prep.tokenize import BuiltStore, DocumentTokenizer, build_stores, load_tokenizer

PAGE = "report.html"
"""Of an index, beside its `report.json`."""


@dataclass(frozen=True)
class Packed:
    """What `pack` made or found.

    Attributes:
        stores: one per source, sorted by source name.
        report: see `data.statistics.index_report`.
        seconds: spent on tokenizing; None where any store was reused.
    """

    stores: list[BuiltStore]
    index: BuiltIndex
    report: dict[str, Any]
    seconds: float | None


def pack(
    data: DataConfig,
    *,
    workers: int = 0,
    limit: str | None = None,
    page: bool = True,
    overwrite: bool = False,
    balance: BalanceConfig | None = None,
    on_progress: OnProgress = progress.ignore,
    on_path: Callable[[str], None] = lambda said: None,
    stage: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Packed:
    """Tokenize the sources of `data` and pack them into windows.

    Args:
        workers: tokenizing processes; 0 uses one per core.
        limit: pack only a sample of each source (`1%`, `500MB`, `10000_records`), into its own folders.
        page: draw the index's report beside it, as HTML.
        overwrite: replace an index packed with other options, and stores made from other files or options.
        balance: the ranks whose balance the report describes.
        on_progress: told the bytes read of each source.
        on_path: told which library tokenizes, and why.
        stage: entered around each later stage, with its name.

    Raises:
        DataError: sources, options or existing files that do not fit; says which, and how to fix it.
    """
    sources = read_sources(data, limit)
    index_folder = folder_of(data.index, limit)
    for source in sources:
        check_apart(source, index_folder, "the pack index", (*INDEX_FILES, PAGE))
    tokenizer = load_tokenizer(data.tokenizer)
    options = pack_options(data, tokenizer)
    began = time.monotonic()
    counts = _BytesRead(on_progress)
    stores = build_stores(
        sources,
        tokenizer,
        folder_of(data.store, limit),
        num_workers=workers or usable_cores(),
        overwrite=overwrite,
        on_total=counts.begin,
        on_bytes=counts.advance,
        on_path=on_path,
    )
    seconds = time.monotonic() - began
    with stage("packing windows"):
        index = build_index([built.store for built in stores], options, index_folder, overwrite=overwrite)
    with stage("reporting"):
        report = write_reports(index.index.folder, balance or BalanceConfig(), page=page)
    return Packed(stores, index, report, None if any(built.reused for built in stores) else seconds)


def read_sources(data: DataConfig, limit: str | None = None) -> list[Source]:
    """The config's sources as data_prep takes them, sorted by name: their order has no effect."""
    return [
        Source(
            name=name,
            path=source.path,
            format=source.format,
            pattern=source.pattern,
            text_field=source.text_field,
            where=dict(source.where),
            token_field=source.token_field,
            mask_field=source.mask_field,
            boundary_field=source.boundary_field,
            group_by=tuple(source.group_by),
            group_separator=source.group_separator,
            split=source.split,
            subset=source.subset,
            revision=source.revision,
            limit=limit,
            strict=source.strict,
            max_bad_fraction=source.max_bad_fraction,
            storage_options=dict(source.storage_options),
        )
        for name, source in sorted(data.sources.items())
    ]


def folder_of(path: str, limit: str | None) -> Path:
    """Where a store or index lies: a sample has a folder of its own beside the one of all the data."""
    suffix = "" if limit is None else f"-sample-{limit.strip().replace('%', 'pct').replace(' ', '')}"
    return Path(path.rstrip("/") + suffix).expanduser()


def pack_options(data: DataConfig, tokenizer: DocumentTokenizer) -> PackOptions:
    """The config as the packer takes it.

    Raises:
        DataError: a domain tag that is no token of the tokenizer.
    """
    rules = {}
    for name, source in data.sources.items():
        shortest = data.min_document_tokens if source.min_document_tokens is None else source.min_document_tokens
        rules[name] = LengthRule(shortest, source.upsample_from_tokens, source.keep_short_fraction)
    return PackOptions(
        window_tokens=data.window_tokens,
        end_of_document=data.end_of_document,
        held_out_fraction=data.held_out_fraction,
        seed=data.seed,
        algorithm=data.algorithm,
        long_documents=data.long_documents,
        last_windows=data.last_windows,
        lengths={name: rule for name, rule in sorted(rules.items()) if rule != LengthRule()},
        mixture=dict(sorted(data.mixture.items())),
        total_tokens=data.total_tokens,
        exhausted=data.exhausted,
        interleave_chunk_tokens=data.interleave_chunk_tokens,
        domain_tags={name: tokenizer.token_id(text) for name, text in sorted(data.domain_tags.items())},
    )


def write_reports(folder: Path, balance: BalanceConfig, *, page: bool) -> dict[str, Any]:
    """Write the index's report as JSON and, with `page`, as HTML; nothing where both exist already."""
    from anchorcontext.data.statistics import stored_report, write_report  # torch costs seconds

    there = stored_report(folder, balance)
    if there and ((folder / PAGE).is_file() or not page):
        return there
    with only_writer(folder):
        remove_partial(folder)
        if there is None:
            (folder / PAGE).unlink(missing_ok=True)  # of an index or figures that were there before
        report = there or write_report(folder, balance)
        if page:
            from anchorcontext.report.packing_page import packing_page, page_title  # and so does matplotlib

            write_file(folder / PAGE, packing_page(page_title(folder), report).encode())
    return report


class _BytesRead:
    """Adds up what is read of each source. An empty file that is left alone is no progress."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._totals: dict[str, int] = {}
        self._done: Counter[str] = Counter()

    def begin(self, name: str, num_bytes: int) -> None:
        if num_bytes:
            self._totals[name] = num_bytes
            self.advance(name, 0)

    def advance(self, name: str, num_bytes: int) -> None:
        if name in self._totals:
            self._done[name] += num_bytes
            self._on_progress(f"tokenizing {name}", self._done[name], self._totals[name])
