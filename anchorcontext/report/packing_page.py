"""The report of a pack index as a page, or as sections of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from anchorcontext.data.statistics import TRAIN, USED_EDGES
from anchorcontext.figures import Figures
from anchorcontext.plots import (
    draw_balance,
    draw_distances,
    draw_lengths,
    draw_sources,
    draw_used,
    draw_work,
    to_png,
)
from anchorcontext.report.html import figure, page, section, table
from anchorcontext.report.packing import account_tables, balance_tables, wanted_tokens
from anchorcontext.report.sample import is_sample, mixture_table, sample_table


def packing_page(title: str, report: Mapping[str, Any]) -> str:
    """A page on one index."""
    return page(title, list(packing_sections("", report)))


def write_packing_page(index: str | Path, report: Mapping[str, Any], path: str | Path) -> Path:
    """Write the page on the index in that folder; returns the path."""
    file = Path(path).expanduser()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(packing_page(page_title(Path(index)), report), encoding="utf-8")
    return file


def page_title(folder: Path) -> str:
    """The last two names of an index's path: its own is often its window's length alone."""
    return "Pack index " + "/".join(folder.expanduser().absolute().parts[-2:])


def packing_sections(name: str, report: Mapping[str, Any]) -> Iterator[str]:
    """What was packed, how long its documents are, and what training on it will be like.

    Args:
        name: set before each section's title, where a page has several indexes.
        report: as `data.statistics.index_report` makes it.
    """
    before = f"{name}: " if name else ""
    window_tokens, sources, training = report["window_tokens"], report["sources"], report["splits"][TRAIN]
    packed = {source: counts[TRAIN]["tokens"] for source, counts in sources.items()}
    yield section(
        f"{before}Windows of {window_tokens:,} rows",
        f"Pack index {report['index_hash'][:12]}: {_options(report)}. A document or token that was read is packed or "
        "counted by the reason why it is not.",
        *map(_html, account_tables(report)),
        *([_html(sample_table(sources))] if is_sample(sources) else []),
        *([_html(mixture_table(estimate))] if (estimate := report["mixture_estimate"]) else []),
        _drawn(
            draw_sources(packed, wanted_tokens(sources)), "Training tokens of each source, and what the mixture wanted."
        ),
        _drawn(draw_used(training["used"], USED_EDGES), "Training windows by the share of their rows that is used."),
    )
    lengths = {source: counts[TRAIN]["lengths"] for source, counts in sources.items()}
    distances = training["distance_frequency"]
    yield section(
        f"{before}Lengths",
        "Training documents by length as they were read, and their pieces as they were packed. A relative position "
        "that no pair of rows in a document has is never trained on.",
        _drawn(draw_lengths(lengths, window_tokens), "Documents and tokens by length, before packing and after."),
        _drawn(
            draw_distances(distances["distances"], distances["pairs"], training["windows"], window_tokens),
            "Pairs of rows in one document, by their distance.",
        ),
    )
    yield section(
        f"{before}Work and balance",
        _assumptions(report),
        _drawn(draw_work(training["work"]["windows_by_share"]), "Training windows by their attention work."),
        _drawn(
            draw_balance(training["context_parallel"], training["step_efficiency"]),
            "Balance among ranks that share a window, and among the windows of a step.",
        ),
        *map(_html, balance_tables(report)),
    )


def _options(report: Mapping[str, Any]) -> str:
    words = [f"end_of_document {report['end_of_document']}", f"seed {report['seed']}"]
    for name, value in report["options"].items():
        if isinstance(value, dict):
            value = "; ".join(f"{key}: {entry}" for key, entry in value.items())
        words += [f"{name} {value}"] if value else []
    return ", ".join(words)


def _assumptions(report: Mapping[str, Any]) -> str:
    assumed = report["balance"]
    windows = assumed["windows_per_step"]
    return (
        "Work is the sum of squared document lengths, which arms that keep documents apart spend on attention. Left "
        "below: ranks that share a window, planned by the cheapest policy. Right: step efficiency, the time that "
        f"{assumed['data_ranks'] or windows} data-parallel ranks compute over the time that steps of {windows} windows "
        f"take, where a row costs as much as {assumed['row_pairs']:,} query-key pairs beside its attention."
    )


def _html(figures: Figures) -> str:
    return table(figures.columns, figures.lines, figures.title, figures.left - {figures.columns[0]})


def _drawn(drawn: Figure, alt: str) -> str:
    return figure(to_png(drawn), alt)
