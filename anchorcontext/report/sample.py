"""What a sample (`limit`) says about the whole corpus: documents, tokens by length, time, and the mixture's needs."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anchorcontext.figures import Figures
from data_prep.pack import SPLITS

_LENGTH_BITS = (0, 12, 14, 16, 17)
"""Powers of two at which the table of lengths begins a column."""


def is_sample(account: Mapping[str, Any]) -> bool:
    """Whether any source of a pack index's account was read in part."""
    return any(counts.get("sample") for counts in account.values())


def sample_table(account: Mapping[str, Any]) -> Figures:
    """The whole corpus by what was read of it: documents, tokens, and tokens by the length of their document."""
    ends = [*(f"< {2**bits:,}" for bits in _LENGTH_BITS[1:]), "longer"]
    columns = ("source", "read", "documents", "tokens", *ends)
    lines = []
    for name, counts in account.items():
        fraction = _fraction(counts)
        tokens = [tokens / fraction for tokens in _tokens_by_length(counts)]
        documents = f"{counts['documents'] / fraction:,.0f}"
        lines.append([name, f"{fraction:.2%}", documents, short(sum(tokens)), *map(short, tokens)])
    title = "The whole corpus, estimated (tokens by length of document)"
    return Figures(title, columns, frozenset({"source"}), lines)


def mixture_lines(estimate: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Whether the whole corpus has what a mixture needs, one line per source.

    Args:
        estimate: `mixture_estimate` of the index's report.
    """
    for each in estimate:
        available, needed = short(each["available_tokens"]), short(each["needed_tokens"])
        shortest = each["min_document_tokens"]
        long = f" in documents of at least {shortest:,} tokens" if shortest > 1 else ""
        yield f"{each['source']}: {_verdict(each)}: {available} of {needed} needed{long}"


def mixture_table(estimate: Sequence[Mapping[str, Any]]) -> Figures:
    """The same as a table."""
    lines = [
        [
            each["source"],
            _verdict(each),
            short(each["available_tokens"]),
            short(each["needed_tokens"]),
            f"{each['min_document_tokens']:,}",
        ]
        for each in estimate
    ]
    title = "Does the whole corpus have enough for the mixture? (tokens, estimated)"
    columns = ("source", "verdict", "available", "needed", "shortest document")
    return Figures(title, columns, frozenset({"source", "verdict"}), lines)


def _verdict(estimate: Mapping[str, Any]) -> str:
    return "enough" if estimate["enough"] else "NOT ENOUGH"


def time_line(account: Mapping[str, Any], seconds: float) -> str | None:
    """How long all would take at most, by what this run's sample took; None where a source was not sampled.

    A bound, because the time includes what does not grow with the corpus (starting processes, the
    proof of the fast path) and the reading of records that the sample left out.
    """
    samples = [counts.get("sample") for counts in account.values()]
    if not all(samples):
        return None
    total = sum(sample["num_bytes"] for sample in samples)
    read = sum(sample["num_bytes"] * sample["fraction"] for sample in samples)
    whole = seconds * total / read if read else 0.0
    return (
        f"tokenizing took {seconds:,.1f} s for {read / total:.2%} of {_size(total)} in storage: at most "
        f"about {_duration(whole)} for all of it, with as many workers"
    )


def short(tokens: float) -> str:
    """Tokens in thousands, millions or billions."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if tokens >= 0.3 * size:
            return f"{tokens / size:,.1f}{unit}"
    return f"{tokens:,.0f}"


def _fraction(counts: Mapping[str, Any]) -> float:
    sample = counts.get("sample")
    return sample["fraction"] if sample else 1.0


def _tokens_by_length(counts: Mapping[str, Any]) -> list[int]:
    """Tokens of each column, over both splits."""
    found = [0] * len(_LENGTH_BITS)
    for split in SPLITS:
        for bits, tokens in enumerate(counts[split]["lengths"]["tokens_in"]):
            found[bisect.bisect(_LENGTH_BITS, bits) - 1] += tokens
    return found


def _size(num_bytes: float) -> str:
    unit, size = ("GB", 1e9) if num_bytes >= 1e8 else ("MB", 1e6)
    return f"{num_bytes / size:,.2f} {unit}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:,.1f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:,.0f} min"
    return f"{seconds / 3600:,.1f} h"
