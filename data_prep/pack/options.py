"""How windows are made of documents: what `build_index` is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from data_prep.errors import DataError
from data_prep.mix import EXHAUSTED, LengthRule

END_OF_DOCUMENT = ("eos", "none")
ALGORITHMS = ("best_fit_decreasing", "first_fit", "concat_and_chop", "one_document")
LONG_DOCUMENTS = ("split", "head", "drop")
LAST_WINDOWS = ("keep", "drop")
_CHOICES = {
    "end_of_document": END_OF_DOCUMENT,
    "algorithm": ALGORITHMS,
    "long_documents": LONG_DOCUMENTS,
    "last_windows": LAST_WINDOWS,
    "exhausted": EXHAUSTED,
}
_MIN_WINDOW_TOKENS = 4


@dataclass(frozen=True)
class PackOptions:
    """How windows are made.

    Attributes:
        window_tokens: rows of a window, anchors, tags and end-of-document rows included.
        end_of_document: `eos` ends every document's last piece with the EOS row; `none` does not.
        held_out_fraction: share of documents, chosen by a hash of their text, for `held_out`.
        seed: of everything that chance decides.
        algorithm: `best_fit_decreasing` cuts only what is longer than a window and leaves the least
            empty; `first_fit` takes documents in random order; `concat_and_chop` cuts wherever a
            window ends; `one_document` gives each piece its own window.
        long_documents: a document longer than a window is cut into several pieces (`split`), into
            its first window (`head`), or left out (`drop`).
        last_windows: `drop` leaves out the emptiest window of each split unless it is full (with
            `concat_and_chop` the last one); no effect on `one_document`.
        lengths: which documents of a source are taken, by its name.
        mixture: weight of each source in the training tokens; none: everything there is.
        total_tokens: training tokens in all; None: as many as the mixture can have.
        exhausted: of a source that has less than the mixture wants, `error` or `repeat`.
        interleave_chunk_tokens: cut the documents of a window into chunks of so many tokens and
            mix these; 0 leaves documents whole.
        domain_tags: by source, the token whose row follows the anchor in each of its pieces.

    Raises:
        DataError: a value out of range, or one that contradicts another.
    """

    window_tokens: int
    end_of_document: str = "eos"
    held_out_fraction: float = 0.01
    seed: int = 0
    algorithm: str = "best_fit_decreasing"
    long_documents: str = "split"
    last_windows: str = "keep"
    lengths: Mapping[str, LengthRule] = field(default_factory=dict)
    mixture: Mapping[str, float] = field(default_factory=dict)
    total_tokens: int | None = None
    exhausted: str = "error"
    interleave_chunk_tokens: int = 0
    domain_tags: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        least = _MIN_WINDOW_TOKENS + bool(self.domain_tags)
        if self.window_tokens < least:
            tag = ", tag" if self.domain_tags else ""
            raise DataError(
                f"window_tokens={self.window_tokens}: a window holds at least {least} rows "
                f"(anchor{tag}, two tokens, end of document)"
            )
        for name, words in _CHOICES.items():
            if getattr(self, name) not in words:
                raise DataError(f"{name}={getattr(self, name)!r} is not one of {', '.join(words)}")
        if not 0 <= self.held_out_fraction < 1:
            raise DataError(f"held_out_fraction={self.held_out_fraction} is not in 0 <= fraction < 1")
        if self.interleave_chunk_tokens < 0:
            raise DataError(f"interleave_chunk_tokens={self.interleave_chunk_tokens} is less than 0")
        if self.total_tokens is not None and self.total_tokens < 1:
            raise DataError(f"total_tokens={self.total_tokens} is less than 1")
        if self.exhausted == "repeat" and self.total_tokens is None:
            raise DataError("exhausted=repeat needs total_tokens: without it nothing says how often to repeat")

    def tagged_sources(self, names: Sequence[str]) -> tuple[int, ...]:
        """The sources, by number, whose pieces have a tag row."""
        return tuple(number for number, name in enumerate(names) if name in self.domain_tags)

    def length_rule(self, name: str) -> LengthRule:
        return self.lengths.get(name, LengthRule())
