"""Group `data`: a packed data set, from its sources to the index of one window length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from omegaconf import MISSING

from anchorcontext.config.files import tokenizer_problems
from anchorcontext.config.groups.source import SourceConfig
from anchorcontext.config.rules import Range, number, one_of
from anchorcontext.errors import Problem
from data_prep.pack.options import ALGORITHMS, END_OF_DOCUMENT, EXHAUSTED, LAST_WINDOWS, LONG_DOCUMENTS


@dataclass
class DataConfig:
    """A packed data set: what `pack` writes, and what the other commands read."""

    sources: dict[str, SourceConfig] = field(default_factory=dict)
    """Sources by name; needed by `pack` only."""
    tokenizer: str = MISSING
    """Folder or hub name of the tokenizer to pack with."""
    store: str = MISSING
    """Folder of the token stores, one sub-folder per source; shared by all window lengths."""
    index: str = MISSING
    """Folder of the pack index, for one window length."""
    window_tokens: int = number(MISSING, 2, 2**31 - 1)
    """Rows per window, anchors and end-of-document tokens included."""
    end_of_document: str = one_of(END_OF_DOCUMENT, "eos")
    """`eos` ends the last piece of every document with the EOS token; `none` does not."""
    held_out_fraction: float = number(0.01, 0, 1, open_high=True)
    """Share of documents, chosen by a hash of their text, kept for the `held_out` split."""
    seed: int = number(0, 0, 2**63 - 1)
    """Seed of everything that `pack` decides at random: the order of windows, the documents of a mixture."""
    algorithm: str = one_of(ALGORITHMS, "best_fit_decreasing")
    """How windows are filled: `best_fit_decreasing`, `first_fit`, `concat_and_chop` (cuts documents that would
    fit) or `one_document` per window."""
    long_documents: str = one_of(LONG_DOCUMENTS, "split")
    """A document longer than a window: `split` over windows, truncated to its first window (`head`), or
    left out (`drop`)."""
    min_document_tokens: int = number(1, 1, 2**63 - 1)
    """Documents with fewer tokens are not packed; a source can override it."""
    last_windows: str = one_of(LAST_WINDOWS, "keep")
    """`drop` leaves out the emptiest window of each split (with concat_and_chop the last) unless it is full."""
    mixture: dict[str, float] = field(default_factory=dict)
    """Weight of each source in the training tokens, in any positive numbers. Empty: every source as it is."""
    total_tokens: int | None = number(None, 1, 2**63 - 1)
    """Training tokens to pack. Null: as many as the mixture allows without repeating a document."""
    exhausted: str = one_of(EXHAUSTED, "error")
    """When a source has fewer tokens than the mixture asks for: stop with an `error`, or `repeat` its documents."""
    interleave_chunk_tokens: int = number(0, 0, 2**31 - 1)
    """Cut the documents of a window into chunks of this many tokens and shuffle these; 0 keeps documents whole."""
    domain_tags: dict[str, str] = field(default_factory=dict)
    """By source, the token (as text) that follows the anchor in each of the source's pieces."""

    def pack_problems(self) -> Iterator[Problem]:
        """Everything that keeps `pack` from packing: sources, tokenizer, mixture and policies."""
        if not self.sources:
            fix = "nothing to pack: choose data=NAME, or give '+data.sources={NAME: {path: FOLDER}}'"
            yield Problem("data.sources", "{}", fix)
        for name, source in self.sources.items():
            yield from source.problems(f"data.sources.{name}")
        yield from tokenizer_problems("data.tokenizer", self.tokenizer)
        yield from self._mixture_problems()
        for name in sorted(set(self.domain_tags) - set(self.sources)):
            yield Problem(f"data.domain_tags.{name}", self.domain_tags[name], self._no_source())
        if self.last_windows == "drop" and self.algorithm == "one_document":
            fix = "has no effect when each document has its own window: choose keep, or another data.algorithm"
            yield Problem("data.last_windows", "drop", fix)

    def _mixture_problems(self) -> Iterator[Problem]:
        if self.mixture:
            for name in sorted(set(self.mixture) - set(self.sources)):
                yield Problem(f"data.mixture.{name}", self.mixture[name], self._no_source())
            for name in sorted(set(self.sources) - set(self.mixture)):
                fix = "a mixture needs a weight for every source: give 0 to leave it out"
                yield Problem(f"data.mixture.{name}", "missing", fix)
            for name, weight in self.mixture.items():
                if not Range(0).admits(weight):
                    yield Problem(f"data.mixture.{name}", weight, f"must be {Range(0)}")
            if not any(weight > 0 for weight in self.mixture.values()):
                yield Problem("data.mixture", self.mixture, "at least one source needs a weight above 0")
        if self.exhausted == "repeat" and self.total_tokens is None:
            fix = "needs data.total_tokens, which says how often to repeat; or choose error"
            yield Problem("data.exhausted", "repeat", fix)

    def _no_source(self) -> str:
        return f"no such source: choose from {', '.join(sorted(self.sources)) or 'none'}"
