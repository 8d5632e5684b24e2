"""Rules of `pack`: what cannot be packed as the config says. See `check.py`."""

from __future__ import annotations

from collections.abc import Iterator

from anchorcontext.config.errors import Problem
from anchorcontext.config.fields import Range
from anchorcontext.config.files import source_problems, tokenizer_problems
from anchorcontext.config.schema import DataConfig, PackConfig, SourceConfig
from data_prep.errors import DataError
from data_prep.read import option_problems, parse_limit

_SOURCE_RANGES = {
    "min_document_tokens": Range(1, 2**63 - 1),
    "upsample_from_tokens": Range(0, 2**63 - 1),
    "keep_short_fraction": Range(0, 1),
}


def pack_problems(config: PackConfig) -> Iterator[Problem]:
    """Everything wrong with sources, tokenizer, mixture and policies."""
    data = config.data
    if not data.sources:
        yield Problem(
            "data.sources", "{}", "nothing to pack: choose data=NAME, or '+data.sources={NAME: {path: FOLDER}}'"
        )
    for name, source in data.sources.items():
        yield from _source_problems(f"data.sources.{name}", source)
    if config.limit is not None:
        try:
            parse_limit(config.limit)
        except DataError as error:
            yield Problem("limit", config.limit, str(error).partition(": ")[2])
    yield from tokenizer_problems("data.tokenizer", data.tokenizer)
    yield from _mixture_problems(data)
    for name in sorted(set(data.domain_tags) - set(data.sources)):
        yield Problem(f"data.domain_tags.{name}", data.domain_tags[name], _no_source(data))
    if data.last_windows == "drop" and data.algorithm == "one_document":
        fix = "has no effect where each document has its own window: keep, or another data.algorithm"
        yield Problem("data.last_windows", "drop", fix)


def _source_problems(key: str, source: SourceConfig) -> Iterator[Problem]:
    if source.format != "dataset":
        yield from source_problems(f"{key}.path", source.path)
    for name, value, fix in option_problems(source):
        yield Problem(f"{key}.{name}", value, fix)
    for name, allowed in _SOURCE_RANGES.items():
        value = getattr(source, name)
        if value is not None and not allowed.admits(value):
            yield Problem(f"{key}.{name}", value, f"must be {allowed}")
    if (source.upsample_from_tokens > 0) != (source.keep_short_fraction < 1):
        fix = "upsample_from_tokens and keep_short_fraction have an effect only together: such as 4096 and 0.1"
        yield Problem(f"{key}.upsample_from_tokens", source.upsample_from_tokens, fix)


def _mixture_problems(data: DataConfig) -> Iterator[Problem]:
    if data.mixture:
        for name in sorted(set(data.mixture) - set(data.sources)):
            yield Problem(f"data.mixture.{name}", data.mixture[name], _no_source(data))
        for name in sorted(set(data.sources) - set(data.mixture)):
            fix = "a mixture gives every source a weight: 0 leaves it out"
            yield Problem(f"data.mixture.{name}", "missing", fix)
        for name, weight in data.mixture.items():
            if not Range(0).admits(weight):
                yield Problem(f"data.mixture.{name}", weight, f"must be {Range(0)}")
        if not any(weight > 0 for weight in data.mixture.values()):
            yield Problem("data.mixture", data.mixture, "at least one source needs a weight above 0")
    if data.exhausted == "repeat" and data.total_tokens is None:
        fix = "needs data.total_tokens: nothing else says how often to repeat; or error"
        yield Problem("data.exhausted", "repeat", fix)


def _no_source(data: DataConfig) -> str:
    return f"no such source: they are {', '.join(sorted(data.sources)) or 'none'}"
