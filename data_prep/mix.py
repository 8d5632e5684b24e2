"""How much of which source, and of which lengths: knows tokens and sources, nothing of windows.

Length upsampling gives long documents more weight by thinning out short ones. Keeping a tenth of the
documents below 4,096 tokens, source by source, is how the data of "Data Engineering for Scaling
Language Models to 128K Context" (arXiv 2402.10171) was made. A mixture says how many tokens each
source gives, and which of its pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from data_prep.errors import DataError
from data_prep.permutation import seeded_keys

EXHAUSTED = ("error", "repeat")


@dataclass(frozen=True)
class LengthRule:
    """Which documents of a source are taken, by their length.

    Attributes:
        min_document_tokens: shorter documents are dropped.
        upsample_from_tokens: documents from this length on are all kept; 0: no upsampling.
        keep_short_fraction: chance of a shorter document to be kept; training data alone.

    Raises:
        DataError: a value out of range, or one that has no effect.
    """

    min_document_tokens: int = 1
    upsample_from_tokens: int = 0
    keep_short_fraction: float = 1.0

    def __post_init__(self) -> None:
        if self.min_document_tokens < 1:
            raise DataError(f"min_document_tokens={self.min_document_tokens}: a document has at least 1 token")
        if self.upsample_from_tokens < 0:
            raise DataError(f"upsample_from_tokens={self.upsample_from_tokens} is less than 0")
        if not 0 <= self.keep_short_fraction <= 1:
            raise DataError(f"keep_short_fraction={self.keep_short_fraction} is not in 0 <= fraction <= 1")
        if (self.upsample_from_tokens > 0) != (self.keep_short_fraction < 1):
            raise DataError(
                f"upsample_from_tokens={self.upsample_from_tokens} and keep_short_fraction={self.keep_short_fraction} "
                "have an effect only together: give both, such as 4096 and 0.1"
            )


def keep_short(lengths: np.ndarray, keys: np.ndarray, upsample_from_tokens: int, fraction: float) -> np.ndarray:
    """Which documents are kept, bool [documents].

    Args:
        lengths: tokens of each.
        keys: a pseudo-random uint64 of each, which decides.
    """
    chosen = keys < np.uint64(min(int(fraction * 2.0**64), 2**64 - 1))
    return (lengths >= upsample_from_tokens) | (chosen if fraction < 1 else True)


@dataclass(frozen=True)
class Share:
    """What a mixture asks of a source.

    Attributes:
        weight: of all tokens, the weights of all sources summing to 1.
        target_tokens: tokens wanted of what was read: of a sample, the sample's share.
        available_tokens: tokens there are, once each; of a sample, in the sample.
        fraction: the share of the source that was read.
    """

    weight: float
    target_tokens: int
    available_tokens: int
    fraction: float = 1.0


def shares_of(
    weights: Mapping[str, float],
    available: Mapping[str, int],
    total_tokens: int | None = None,
    *,
    exhausted: str = "error",
    fractions: Mapping[str, float] | None = None,
) -> dict[str, Share]:
    """What each source is to give.

    Args:
        weights: of each source; any positive numbers, 0 leaves a source out.
        available: tokens of each source that could be packed.
        total_tokens: of all sources together. None: as many as the source gives that runs dry first.
        exhausted: `error`: a source that has too few tokens is refused; `repeat`: it starts again.
        fractions: the share of each source that was read where `limit` took a sample. A sample's
            targets are scaled by it, and a shortage there is for the account, not an error.

    Raises:
        DataError: weights that do not name the sources, or a source with too few tokens (says how
            many it has, how many are needed, and every way to fix it).
    """
    if missing := sorted(set(available) - set(weights)):
        raise DataError(f"mixture: no weight for {', '.join(missing)}: give each source one (0 leaves it out)")
    if unknown := sorted(set(weights) - set(available)):
        raise DataError(
            f"mixture: no source named {', '.join(unknown)}: the sources are {', '.join(sorted(available))}"
        )
    total_weight = sum(weights.values())
    if min(weights.values()) < 0 or not total_weight > 0:
        raise DataError("mixture: weights are at least 0, and one of them is more")
    wanted = {name: weight / total_weight for name, weight in weights.items() if weight > 0}
    read = {name: (fractions or {}).get(name, 1.0) for name in available}
    is_sample = any(fraction < 1 for fraction in read.values())
    empty = sorted(name for name in wanted if not available[name])
    if empty and not (is_sample and total_tokens is not None):
        raise DataError(f"mixture: {', '.join(empty)} has no tokens to give: leave it out with weight 0")
    most = min(available[name] / read[name] / weight for name, weight in wanted.items())
    total = most if total_tokens is None else total_tokens
    targets = {name: round(total * wanted.get(name, 0.0) * read[name]) for name in available}
    if total_tokens is None:
        targets = {name: min(target, available[name]) for name, target in targets.items()}
    short = sorted(name for name in wanted if targets[name] > available[name])
    if short and exhausted == "error" and not is_sample:
        raise DataError(_shortage(short, targets, available, int(most)))
    return {
        name: Share(wanted.get(name, 0.0), targets[name], available[name], read[name]) for name in sorted(available)
    }


def take_tokens(
    tokens: np.ndarray, document: np.ndarray, target: int, *seed: str | int
) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of one source that come as near to a number of tokens as whole pieces can.

    Documents are taken in a seeded order, each with its pieces in theirs; where all are taken, they
    are taken again in another order.

    Args:
        tokens: of each piece, at least 1.
        document: of each piece; the pieces of a document are consecutive.
        target: tokens wanted.

    Returns:
        The pieces taken, int64 [taken], and how often each had been taken before, int64 [taken].
    """
    number = np.cumsum(np.append(False, document[1:] != document[:-1])) if len(document) else document
    taken, repetitions = [], []
    left, repetition = target, 0
    while left > 0 and len(tokens):
        keys = seeded_keys(int(number[-1]) + 1, *seed, repetition)
        order = np.lexsort((number, keys[number]))
        sums = np.cumsum(tokens[order].astype(np.int64))
        count = int(np.searchsorted(sums, left))  # pieces that stay below
        if count < len(sums):
            below = left - (int(sums[count - 1]) if count else 0)
            count += int(sums[count]) - left <= below  # one more where that comes nearer
        taken.append(order[:count])
        repetitions.append(np.full(count, repetition, dtype=np.int64))
        left = left - int(sums[-1]) if count == len(sums) else 0
        repetition += 1
    if not taken:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    return np.concatenate(taken), np.concatenate(repetitions)


def _shortage(short: list[str], targets: Mapping[str, int], available: Mapping[str, int], most: int) -> str:
    lines = [
        f"  - {name}: needs {targets[name]:,} tokens, has {available[name]:,} "
        f"({targets[name] / available[name]:.2f} times what there is)"
        for name in short
    ]
    return (
        "the mixture asks for more than its sources have:\n"
        + "\n".join(lines)
        + f"\nSet total_tokens to at most {most:,}, lower their weights, add data, or let them repeat with "
        "exhausted=repeat"
    )
