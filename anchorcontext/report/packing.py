"""The report of a pack index as tables, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anchorcontext.figures import Figures, counted

TRAIN = "train"
_LEFT = frozenset({"source", "split", "what", "order.balance_steps"})


def account_tables(report: Mapping[str, Any]) -> Iterator[Figures]:
    """What became of every document and token: a table each of sources, splits, what was dropped, the mixture.

    Args:
        report: `data.statistics.index_report`, of which `sources`, `splits` and `window_tokens` are read.
    """
    yield _sources(report["sources"], list(report["splits"]))
    yield _splits(report)
    for table in (_dropped(report["splits"]), _mixture(report["sources"])):
        if table.lines:
            yield table


def balance_tables(report: Mapping[str, Any]) -> Iterator[Figures]:
    """How evenly ranks will work on the training windows."""
    training, assumed = report["splits"][TRAIN], report["balance"]
    per_step = assumed["windows_per_step"]
    ranks = assumed["data_ranks"] or per_step
    efficiency = training["step_efficiency"]
    if efficiency:
        title = f"Steps of {counted(per_step, 'window')} on {counted(ranks, 'data-parallel rank')}"
        lines = [[steps + (" (plain)" if steps == "0" else ""), f"{value:.1%}"] for steps, value in efficiency.items()]
        yield _table(title, ("order.balance_steps", "step efficiency"), lines)
    sharing = training["context_parallel"]
    if sharing:
        title = f"Ranks that share a window ({counted(sharing[0]['windows'], 'window')}, arm {report['arm']})"
        columns = ("ranks", "work max/mean", "worst", "rows moved / all-gather's", "time/ideal")
        lines = [
            [
                str(each["ranks"]),
                f"{each['work_balance']:.3f}",
                f"{each['worst_work_balance']:.3f}",
                f"{each['of_all_gather']:.1%}",
                f"{each['time_of_ideal']:.3f}",
            ]
            for each in sharing
        ]
        yield _table(title, columns, lines)


def wanted_tokens(sources: Mapping[str, Any]) -> dict[str, int]:
    """Training tokens that a mixture wanted, by source; empty without one."""
    shares = {name: counts[TRAIN]["share"] for name, counts in sources.items()}
    return {name: share["target_tokens"] for name, share in shares.items() if share}


def _sources(sources: Mapping[str, Any], splits: list[str]) -> Figures:
    lines = [
        [
            name,
            f"{counts['documents']:,}",
            f"{sum(counts['skipped'].values()):,}",
            f"{counts['tokens']:,}",
            *(f"{counts[split]['tokens']:,}" for split in splits),
        ]
        for name, counts in sources.items()
    ]
    return _table("Sources, in tokens", ("source", "documents", "skipped", "tokens", *splits), lines)


def _splits(report: Mapping[str, Any]) -> Figures:
    columns = {"documents": "documents", "cut_documents": "cut", "tokens": "tokens", "padding_rows": "padding"}
    lines = [
        [
            split,
            f"{counts['windows']:,}",
            f"{counts['density']:.3%}",
            *(f"{counts[name]:,}" for name in columns),
            f"{counts['work']['mean'] / counts['work']['one_document']:.1%}",
        ]
        for split, counts in report["splits"].items()
    ]
    title = f"Windows of {report['window_tokens']:,} rows (cut: not in one piece; work: of one document's)"
    return _table(title, ("split", "windows", "density", *columns.values(), "work"), lines)


def _dropped(splits: Mapping[str, Any]) -> Figures:
    """What was read and not packed, and what was packed again."""
    lines = []
    for split, counts in splits.items():
        entries = dict(counts["dropped"])
        if counts["repeated"]["tokens"]:
            entries["repeated by the mixture"] = counts["repeated"]
        for what, amount in entries.items():
            lines.append([split, what, f"{amount['documents']:,}", f"{amount['tokens']:,}"])
        if counts["needlessly_cut"]:
            lines.append([split, "cut, though shorter than a window", f"{counts['needlessly_cut']:,}", ""])
    return _table("Not packed, or packed again", ("split", "what", "documents", "tokens"), lines)


def _mixture(sources: Mapping[str, Any]) -> Figures:
    """Tokens of each source against what the mixture wanted; no lines without a mixture."""
    shares = {name: counts[TRAIN]["share"] for name, counts in sources.items() if counts[TRAIN]["share"]}
    total = sum(sources[name][TRAIN]["tokens"] for name in shares)
    lines = []
    for name, share in shares.items():
        tokens, available = sources[name][TRAIN]["tokens"], share["available_tokens"]
        lines.append(
            [
                name,
                f"{share['weight']:.2%}",
                f"{share['target_tokens']:,}",
                f"{tokens:,}",
                f"{tokens / total:.2%}" if total else "",
                f"{available:,}",
                f"{tokens / available:.2f} times" if available else "",
            ]
        )
    columns = ("source", "weight", "wanted", "packed", "share", "there are", "used")
    return _table("Mixture of the training split, in tokens", columns, lines)


def _table(title: str, columns: tuple[str, ...], lines: list[list[str]]) -> Figures:
    return Figures(title, columns, _LEFT & set(columns), lines)
