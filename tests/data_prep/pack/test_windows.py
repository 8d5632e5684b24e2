"""Pieces placed in windows by every algorithm, and interleaved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.errors import DataError
from data_prep.mix import LengthRule
from data_prep.pack.options import ALGORITHMS, LAST_WINDOWS, LONG_DOCUMENTS, PackOptions
from data_prep.pack.pieces import ENDS_DOCUMENT, INNER_CHUNK, piece_rows
from data_prep.pack.windows import interleave
from tests.data_prep.pack.cases import WHOLE, check_account, check_split, documents_of, packed

_OPTIONS = st.fixed_dictionaries(
    {
        "window_tokens": st.integers(5, 40),
        "end_of_document": st.sampled_from(["eos", "none"]),
        "algorithm": st.sampled_from(ALGORITHMS),
        "long_documents": st.sampled_from(LONG_DOCUMENTS),
        "last_windows": st.sampled_from(LAST_WINDOWS),
        "interleave_chunk_tokens": st.sampled_from([0, 0, 1, 3, 7]),
        "domain_tags": st.sampled_from([{}, {"source1": 9}]),
        "seed": st.integers(0, 3),
    }
)
_LENGTHS = st.lists(st.integers(1, 100), min_size=1, max_size=25)


@given(_LENGTHS, _LENGTHS, _OPTIONS, st.integers(1, 8))
def test_rows_are_exact_and_all_is_accounted_for(
    first: list[int], second: list[int], options: dict[str, Any], shortest: int
) -> None:
    documents = documents_of(first, second)
    given = PackOptions(**options, lengths={"source0": LengthRule(min_document_tokens=shortest)})
    found = packed(documents, given, "held_out")  # where a source may vanish
    check_split(documents, given, found)
    check_account(documents, found)


@given(_LENGTHS, _LENGTHS, _OPTIONS, st.integers(1, 400), st.floats(0.1, 5))
def test_mixtures_too(first: list[int], second: list[int], options: dict[str, Any], total: int, weight: float) -> None:
    documents = documents_of(first, second)
    mixture = {"source0": 1.0, "source1": weight}
    given = PackOptions(**options, mixture=mixture, total_tokens=total, exhausted="repeat")
    try:
        found = packed(documents, given)
    except DataError as error:
        assert "none of its" in str(error) or "has no tokens" in str(error)  # noqa: PT017 - some draws drop all
        return
    check_split(documents, given, found)
    check_account(documents, found)
    for figures in found.per_source:
        wanted, last = figures["share"]["target_tokens"], figures["dropped"].get("in the last window, dropped")
        got = figures["tokens"] + (last["tokens"] if last else 0)
        assert abs(got - wanted) < given.window_tokens


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("window", [8193, 8191, 4096])
def test_lengths_around_the_window(algorithm: str, window: int) -> None:
    lengths = [1, 2, window - 3, window - 2, window - 1, window, window + 1, 2 * window, 65_536, 200_000]
    documents, options = documents_of(lengths), PackOptions(window, algorithm=algorithm)
    found = packed(documents, options)
    check_split(documents, options, found)
    check_account(documents, found)
    assert found.totals["tokens"] == sum(lengths)
    assert found.totals["documents"] == len(lengths)


def test_only_concat_and_chop_cuts_what_would_have_fitted() -> None:
    lengths = np.random.default_rng(0).integers(1, 300, 500).tolist()
    for algorithm in ALGORITHMS:
        totals = packed(documents_of(lengths), PackOptions(128, algorithm=algorithm)).totals
        assert totals["tokens"] == sum(lengths)
        assert (totals["needlessly_cut"] > 0) == (algorithm == "concat_and_chop")
        fitting = sum(length + 2 <= 128 for length in lengths)
        assert totals["cut_documents"] == len(lengths) - fitting + totals["needlessly_cut"]


def test_one_document_a_window() -> None:
    found = packed(documents_of([3, 14, 15, 40]), PackOptions(16, algorithm="one_document"))
    assert np.diff(found.window_ends.astype(int), prepend=0).tolist() == [1] * len(found.pieces)
    assert found.totals["windows"] == 1 + 1 + 2 + 3


@pytest.mark.parametrize(
    ("policy", "kept", "dropped"),
    [("split", [14, 7, 40], {}), ("head", [14, 7, 15], {"behind the head of a long document": 25})],
)
def test_long_documents(policy: str, kept: list[int], dropped: dict[str, int]) -> None:
    found = packed(documents_of([14, 7, 40]), PackOptions(16, long_documents=policy))
    assert [int(found.pieces["length"][found.pieces["document"] == n].sum()) for n in range(3)] == kept
    assert {reason: counts["tokens"] for reason, counts in found.totals["dropped"].items()} == dropped
    assert all(counts["documents"] == 0 for counts in found.totals["dropped"].values())
    ends = (found.pieces["flags"] & ENDS_DOCUMENT) > 0
    assert len(np.unique(found.pieces["document"][ends])) == (3 if policy == "split" else 2)  # no EOS at a cut


def test_long_documents_dropped() -> None:
    found = packed(documents_of([14, 15, 40]), PackOptions(16, long_documents="drop"))
    assert found.totals["dropped"] == {"longer than a window": {"documents": 2, "tokens": 55}}
    assert found.totals["tokens"] == 14
    whole = packed(documents_of([14, 15, 40]), PackOptions(16, "none", long_documents="drop"))
    assert whole.totals["dropped"] == {"longer than a window": {"documents": 1, "tokens": 40}}


def test_a_head_fills_its_window_even_where_only_its_end_would_be_over() -> None:
    found = packed(documents_of([15]), PackOptions(16, long_documents="head"))
    assert found.pieces["length"].tolist() == [15]
    assert found.pieces["flags"].tolist() == [1]
    assert found.totals["dropped"] == {}
    assert found.totals["cut_documents"] == 1


@pytest.mark.parametrize("algorithm", ["best_fit_decreasing", "first_fit", "concat_and_chop"])
def test_the_last_window_is_dropped_when_asked_and_counted(algorithm: str) -> None:
    documents = documents_of([9] * 11)
    kept, dropped = (
        packed(documents, PackOptions(16, algorithm=algorithm, last_windows=policy)).totals for policy in LAST_WINDOWS
    )
    assert kept["dropped"] == {}
    assert dropped["windows"] == kept["windows"] - 1
    counts = dropped["dropped"]["in the last window, dropped"]
    assert counts["tokens"] == kept["tokens"] - dropped["tokens"] > 0
    assert counts["documents"] == kept["documents"] - dropped["documents"]


def test_a_last_window_that_is_full_stays() -> None:
    totals = packed(documents_of([14] * 10), PackOptions(16, last_windows="drop")).totals
    assert totals["windows"] == 10
    assert totals["dropped"] == {}


def test_documents_that_are_too_short_are_counted() -> None:
    rule = {"source0": LengthRule(min_document_tokens=5)}
    totals = packed(documents_of([4, 5, 6, 1]), PackOptions(16, lengths=rule)).totals
    assert totals["dropped"] == {"shorter than min_document_tokens": {"documents": 2, "tokens": 5}}
    assert totals["documents"] == 2


def test_a_source_of_which_nothing_is_left_is_refused() -> None:
    rule = {"source1": LengthRule(min_document_tokens=50)}
    with pytest.raises(DataError, match=r"source source1: none of its 2 documents is left \(the longest has 9 tokens"):
        packed(documents_of([100], [3, 9]), PackOptions(16, lengths=rule))


def test_a_source_of_weight_zero_is_left_out_and_counted() -> None:
    documents = documents_of([10, 20], [30, 40])
    found = packed(documents, PackOptions(16, mixture={"source0": 0.0, "source1": 2.0}))
    check_account(documents, found)
    assert found.per_source[0]["dropped"] == {"more than the mixture needs": {"documents": 2, "tokens": 30}}
    assert (found.per_source[0]["tokens"], found.per_source[1]["tokens"]) == (0, 70)


def test_a_tag_takes_a_row_of_every_piece_of_its_source() -> None:
    options = PackOptions(16, domain_tags={"source1": 7})
    found = packed(documents_of([14, 30], [13, 14, 30]), options)
    rows = piece_rows(found.pieces, "eos", (1,))
    assert sorted(rows[found.pieces["source"] == 1].tolist()) == [4, 5, 15, 16, 16, 16]
    assert (found.pieces["flags"][found.pieces["document"] == 2] == WHOLE).all()  # 13 + 3 rows still fit


def test_chop_gives_every_piece_its_anchor_and_no_end_its_own_window() -> None:
    options = PackOptions(8, algorithm="concat_and_chop")
    for length in range(1, 40):
        found = packed(documents_of([length]), options)
        rows = piece_rows(found.pieces, "eos")
        assert found.pieces["length"].min() >= 1
        assert (np.sort(rows)[1:] >= 7).all()
        assert rows.max() <= 8


@given(st.lists(st.integers(1, 60), min_size=1, max_size=15), st.integers(1, 9), st.integers(0, 3))
def test_windows_keep_their_tokens(lengths: list[int], chunk: int, seed: int) -> None:
    documents, whole = documents_of(lengths), PackOptions(32, seed=seed)
    options = PackOptions(32, seed=seed, interleave_chunk_tokens=chunk)
    before, after = packed(documents, whole), packed(documents, options)
    check_split(documents, options, after)
    assert after.pieces["length"].max() <= chunk

    def tokens(found: object) -> list[set[int]]:
        windows = np.split(found.pieces, found.window_ends[:-1].astype(int))  # type: ignore[attr-defined]
        return [
            {t for p in window for t in range(int(p["start"]), int(p["start"] + p["length"]))} for window in windows
        ]

    assert tokens(before) == tokens(after)
    for window in np.split(after.pieces, after.window_ends[:-1].astype(int)):
        for document in np.unique(window["document"]):
            mine = window[window["document"] == document]
            assert (np.diff(mine["start"].astype(int)) == chunk).all()  # in order, every chunk but the last whole


def test_chunks_of_several_documents_alternate() -> None:
    found = packed(documents_of([60, 60]), PackOptions(128, interleave_chunk_tokens=4))
    documents = found.pieces["document"]
    assert len(documents) == 30
    assert 5 < (documents[1:] != documents[:-1]).sum() < 29
    assert ((found.pieces["flags"] & INNER_CHUNK) > 0).sum() == 28


def test_the_seed_decides() -> None:
    pieces = packed(documents_of([60, 60]), PackOptions(128)).pieces
    zeros = np.zeros(2, dtype=np.int64)
    first, second, again = (interleave(pieces, zeros, 4, seed)[0]["document"].tolist() for seed in (0, 1, 0))
    assert first == again != second
