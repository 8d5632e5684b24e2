"""Length upsampling and mixtures."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.errors import DataError
from data_prep.mix import LengthRule, keep_short, shares_of, take_tokens
from data_prep.permutation import seeded_keys

_HAVE = {"books": 400, "web": 10_000}


def test_a_long_share_of_three_tenths_becomes_eight() -> None:
    """0.3 / (0.3 + 0.7 * 0.1) = 0.811."""
    lengths = np.concatenate([np.full(3_000, 10_000), np.full(140_000, 500)])
    kept = keep_short(lengths, seeded_keys(len(lengths), "any"), 4096, 0.1)
    long = lengths >= 4096
    assert lengths[long].sum() / lengths.sum() == pytest.approx(0.3)
    assert kept[long].all()
    assert lengths[kept & long].sum() / lengths[kept].sum() == pytest.approx(0.811, abs=0.01)


@pytest.mark.parametrize(("fraction", "kept"), [(0.0, 0), (1.0, 1000)])
def test_none_and_all(fraction: float, kept: int) -> None:
    assert keep_short(np.ones(1000), seeded_keys(1000, "any"), 4096, fraction).sum() == kept


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"min_document_tokens": 0}, "min_document_tokens=0: a document has at least 1 token"),
        ({"upsample_from_tokens": -1}, "upsample_from_tokens=-1 is less than 0"),
        ({"upsample_from_tokens": 9, "keep_short_fraction": 1.5}, r"keep_short_fraction=1\.5 is not in 0"),
        ({"upsample_from_tokens": 9}, "have an effect only together"),
        ({"keep_short_fraction": 0.5}, "have an effect only together"),
    ],
)
def test_rules_out_of_range(values: dict[str, float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        LengthRule(**values)  # type: ignore[arg-type]


def test_without_a_total_the_scarcest_source_decides() -> None:
    shares = shares_of({"books": 3, "web": 1}, _HAVE)
    assert {name: share.target_tokens for name, share in shares.items()} == {"books": 400, "web": 133}
    assert {name: share.weight for name, share in shares.items()} == {"books": 0.75, "web": 0.25}


def test_a_weight_of_zero_leaves_a_source_out() -> None:
    shares = shares_of({"books": 0, "web": 2}, _HAVE)
    assert (shares["books"].target_tokens, shares["web"].target_tokens) == (0, 10_000)


def test_a_source_that_runs_dry_is_refused_with_every_way_out() -> None:
    message = r"books: needs 500 tokens, has 400 \(1\.25 times what there is\)\nSet total_tokens to at most 800"
    with pytest.raises(DataError, match=message):
        shares_of({"books": 1, "web": 1}, _HAVE, 1000)
    repeated = shares_of({"books": 1, "web": 1}, _HAVE, 1000, exhausted="repeat")
    assert repeated["books"].target_tokens == 500


def test_a_sample_is_judged_by_its_share() -> None:
    fractions = {"books": 0.1, "web": 0.01}
    shares = shares_of({"books": 1, "web": 1}, _HAVE, 1_000_000, fractions=fractions)
    assert (shares["books"].target_tokens, shares["web"].target_tokens) == (50_000, 5_000)
    most = shares_of({"books": 1, "web": 1}, _HAVE, fractions=fractions)
    assert (most["books"].target_tokens, most["web"].target_tokens) == (400, 40)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"books": 1}, "no weight for web: give each source one"),
        ({"books": 1, "web": 1, "code": 1}, "no source named code: the sources are books, web"),
        ({"books": -1, "web": 1}, "weights are at least 0"),
        ({"books": 0, "web": 0}, "weights are at least 0, and one of them is more"),
    ],
)
def test_weights_that_do_not_fit(weights: dict[str, float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        shares_of(weights, _HAVE)


def test_a_source_that_is_empty_is_named() -> None:
    with pytest.raises(DataError, match="books has no tokens to give"):
        shares_of({"books": 1, "web": 1}, {"books": 0, "web": 5})
    sample = {"books": 0.01}
    with pytest.raises(DataError, match="books has no tokens to give"):
        shares_of({"books": 1, "web": 1}, {"books": 0, "web": 5}, fractions=sample)
    shares = shares_of({"books": 1, "web": 1}, {"books": 0, "web": 5}, 1000, fractions=sample)  # for the account to say
    assert (shares["books"].target_tokens, shares["books"].available_tokens) == (5, 0)


@given(st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=4), max_size=20), st.integers(0, 3000))
def test_as_near_as_whole_pieces_come(documents: list[list[int]], target: int) -> None:
    tokens = np.array([length for pieces in documents for length in pieces], dtype=np.int64)
    document = np.repeat(np.arange(len(documents)), [len(pieces) for pieces in documents])
    taken, repetitions = take_tokens(tokens, document, target, "seed")
    if not len(tokens):
        assert not len(taken)
        return
    assert abs(int(tokens[taken].sum()) - target) <= 30
    counts = Counter(zip(taken.tolist(), repetitions.tolist(), strict=True))
    assert set(counts.values()) <= {1}
    for repetition in range(int(repetitions.max(initial=0))):  # all but the last are complete
        assert (repetitions == repetition).sum() == len(tokens)
    for repetition in range(int(repetitions.max(initial=0)) + 1):  # a document's pieces in their order, none left out
        for first, second in itertools.pairwise(taken[repetitions == repetition].tolist()):
            assert document[first] != document[second] or second == first + 1


def test_the_seed_chooses_and_repetitions_differ() -> None:
    tokens, document = np.full(100, 7), np.arange(100)
    first, again, other = (take_tokens(tokens, document, 350, seed)[0].tolist() for seed in ("a", "a", "b"))
    assert first == again
    assert sorted(first) != sorted(other)
    taken, repetitions = take_tokens(tokens, document, 1400, "a")
    assert taken[repetitions == 0].tolist() != taken[repetitions == 1].tolist()
