"""`anchorcontext pack`: sources -> token stores -> pack index, with a summary of what became of all.

Run again with the same options it finds everything done; with another window length, seed or
held-out share (and another data.index) it reuses the stores and takes seconds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import DownloadColumn, TaskID

from anchorcontext.config.app import hydra_command
from anchorcontext.config.schema import DataConfig, PackConfig
from anchorcontext.console import progress_bar, table_console
from anchorcontext.machine import usable_cores
from anchorcontext.report.packing import account_tables, balance_tables
from anchorcontext.sample import is_sample, mixture_lines, sample_table, time_line
from data_prep.disk import only_writer, remove_partial, write_file
from data_prep.pack import INDEX_FILES, BuiltIndex, LengthRule, PackOptions, build_index
from data_prep.read import FILTERED, Source, check_apart
from data_prep.store import SKIPPED, TokenStore
from data_prep.tokenize import BuiltStore, DocumentTokenizer, build_stores, load_tokenizer

PAGE = "report.html"
"""Of an index, beside its `report.json`."""


def run(config: PackConfig) -> None:
    """Pack the data that `config.data` describes and print the summary.

    Raises:
        DataError: sources, options or existing files that do not fit; says which and the way out.
    """
    data = config.data
    console = table_console()
    sources = read_sources(data, config.limit)
    index_folder = folder_of(data.index, config.limit)
    for source in sources:
        check_apart(source, index_folder, "the pack index", (*INDEX_FILES, PAGE))
    tokenizer = load_tokenizer(data.tokenizer)
    options = pack_options(data, tokenizer)
    began = time.monotonic()
    with _SourceBars() as bars:
        stores = build_stores(
            sources,
            tokenizer,
            folder_of(data.store, config.limit),
            num_workers=config.workers or usable_cores(),
            overwrite=config.overwrite,
            on_total=bars.begin,
            on_bytes=bars.advance,
            on_path=lambda said: console.print(f"tokenizing by {said}", soft_wrap=True),
        )
    seconds = time.monotonic() - began
    with console.status("packing windows"):
        index = build_index(
            [built.store for built in stores],
            options,
            index_folder,
            overwrite=config.overwrite,
        )
    with console.status("reporting"):
        report = write_reports(index.index.folder, config)
    print_summary(console, stores, index, report)
    account = index.index.manifest["account"]
    if is_sample(account):
        print_estimate(console, report, None if any(built.reused for built in stores) else seconds)


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


def write_reports(folder: Path, config: PackConfig) -> dict[str, Any]:
    """Write the index's report as JSON and, where the config asks for it, as a page; nothing where both are there."""
    from anchorcontext.data.statistics import stored_report, write_report  # torch costs seconds

    there = stored_report(folder, config.balance)
    if there and ((folder / PAGE).is_file() or not config.page):
        return there
    with only_writer(folder):
        remove_partial(folder)
        if there is None:
            (folder / PAGE).unlink(missing_ok=True)  # of an index or figures that were there before
        report = there or write_report(folder, config.balance)
        if config.page:
            from anchorcontext.report.packing_page import packing_page, page_title  # and so does matplotlib

            write_file(folder / PAGE, packing_page(page_title(folder), report).encode())
    return report


def print_summary(console: Console, stores: Sequence[BuiltStore], index: BuiltIndex, report: Mapping[str, Any]) -> None:
    """Documents and tokens of each source, windows of each split, and everything left out."""
    manifest = index.index.manifest
    for built in stores:
        console.print(f"store {built.store.folder}: {_how_built(built)}", soft_wrap=True)
    how = "found as it should be, nothing to do" if index.reused else "packed"
    console.print(f"index {index.index.folder}: {how} ({manifest['index_hash'][:12]})", soft_wrap=True)
    for figures in (*account_tables(report), *balance_tables(report)):
        console.print(figures.for_terminal())
    for built in stores:
        if built.store.manifest["counts"]["skipped"]:
            console.print(_skipped_line(built.store), soft_wrap=True)


def print_estimate(console: Console, report: Mapping[str, Any], seconds: float | None) -> None:
    """The whole corpus, estimated from a sample; `seconds` of tokenizing, None where stores were reused."""
    account = report["sources"]
    console.print(sample_table(account).for_terminal())
    lines = list(mixture_lines(report["mixture_estimate"]))
    if seconds is not None and (line := time_line(account, seconds)) is not None:
        lines.append(line)
    for line in lines:
        console.print(line, soft_wrap=True)


def _skipped_line(store: TokenStore) -> str:
    skipped = dict(store.manifest["counts"]["skipped"])
    filtered = skipped.pop(FILTERED, 0)
    parts = []
    if skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in skipped.items())
        parts.append(f"{reasons} (listed in {store.folder / SKIPPED})")
    if filtered:
        parts.append(f"{filtered:,} {FILTERED}")
    return f"skipped in {store.source}: {', '.join(parts)}"


def _how_built(built: BuiltStore) -> str:
    if built.reused:
        return "reused (same files, tokenizer and options)"
    kept = f", {built.kept_shards} of {built.store.num_shards} shards kept from an interrupted run"
    return "tokenized" + (kept if built.kept_shards else "")


class _SourceBars:
    """A bar a source, in bytes read; nothing is shown where nothing is left to read."""

    def __init__(self) -> None:
        self._progress = progress_bar(counter=DownloadColumn())
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> _SourceBars:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._tasks:
            self._progress.stop()

    def begin(self, name: str, num_bytes: int) -> None:
        if num_bytes:
            self._progress.start()
            self._tasks[name] = self._progress.add_task(f"tokenizing {name}", total=num_bytes)

    def advance(self, name: str, num_bytes: int) -> None:
        if num_bytes:  # an empty file that is left alone has no bar
            self._progress.advance(self._tasks[name], num_bytes)


main = hydra_command("pack", run)

if __name__ == "__main__":
    main()
