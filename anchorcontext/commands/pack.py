"""tokenize documents and pack them into windows."""

from __future__ import annotations

from rich.console import Console
from rich.progress import DownloadColumn

from anchorcontext.config.schema import PackConfig
from anchorcontext.console import Bars, figures_table, table_console
from anchorcontext.packing import Packed, pack
from anchorcontext.report.packing import account_tables, balance_tables
from anchorcontext.report.sample import is_sample, mixture_lines, sample_table, time_line
from data_prep.read import FILTERED
from data_prep.store import SKIPPED, TokenStore
from data_prep.tokenize import BuiltStore


def run(config: PackConfig) -> None:
    """Pack the data that `config.data` describes and print the summary.

    Raises:
        DataError: sources, options or existing files that do not fit; says which, and how to fix it.
    """
    console = table_console()
    with Bars(DownloadColumn()) as bars:
        packed = pack(
            config.data,
            workers=config.workers,
            limit=config.limit,
            page=config.page,
            overwrite=config.overwrite,
            balance=config.balance,
            on_progress=bars,
            on_path=lambda said: console.print(f"tokenizing by {said}", soft_wrap=True),
            stage=bars.then(console.status),
        )
    print_summary(console, packed)
    if is_sample(packed.index.index.manifest["account"]):
        print_estimate(console, packed)


def print_summary(console: Console, packed: Packed) -> None:
    """Documents and tokens of each source, windows of each split, and everything left out."""
    index = packed.index
    for built in packed.stores:
        console.print(f"store {built.store.folder}: {_how_built(built)}", soft_wrap=True)
    how = "found as it should be, nothing to do" if index.reused else "packed"
    console.print(f"index {index.index.folder}: {how} ({index.index.manifest['index_hash'][:12]})", soft_wrap=True)
    for figures in (*account_tables(packed.report), *balance_tables(packed.report)):
        console.print(figures_table(figures))
    for built in packed.stores:
        if built.store.manifest["counts"]["skipped"]:
            console.print(_skipped_line(built.store), soft_wrap=True)


def print_estimate(console: Console, packed: Packed) -> None:
    """What the sample says about the whole corpus."""
    account = packed.index.index.manifest["account"]
    console.print(figures_table(sample_table(account)))
    lines = list(mixture_lines(packed.report["mixture_estimate"]))
    if packed.seconds is not None and (line := time_line(account, packed.seconds)) is not None:
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
