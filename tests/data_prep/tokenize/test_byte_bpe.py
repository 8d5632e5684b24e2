"""Which tokenizers tiktoken may run, and why the others not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from data_prep.tokenize.byte_bpe import NO_ID, NoFastPathError, read_byte_bpe
from tests.data_prep.corpus import byte_tokenizer, word_tokenizer

_SPLIT = {"type": "Split", "pattern": {"Regex": r"\p{L}+|."}, "behavior": "Isolated", "invert": False}
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


@pytest.fixture
def definition(tmp_path: Path) -> dict[str, Any]:
    return json.loads((word_tokenizer(tmp_path) / "tokenizer.json").read_text())


def test_ranks_are_the_order_of_merging_and_ids_the_vocabulary(definition: dict[str, Any]) -> None:
    bpe = read_byte_bpe(definition)
    vocab = definition["model"]["vocab"]
    assert len(bpe.ranks) == 256 + len(definition["model"]["merges"])
    assert bpe.ids[bpe.ranks[b"a"]] == vocab["a"]
    first = "".join(definition["model"]["merges"][0])
    assert bpe.ids[256] == vocab[first]
    assert (bpe.nfc, bpe.added_tokens) == (False, ())


def test_a_byte_without_a_token_is_marked(tmp_path: Path) -> None:
    definition = json.loads((byte_tokenizer(tmp_path) / "tokenizer.json").read_text())
    definition["model"]["vocab"].pop("q")
    bpe = read_byte_bpe(definition)
    assert [token for token, rank in bpe.ranks.items() if bpe.ids[rank] == NO_ID] == [b"q"]


def test_kinds_of_pre_tokenizers_and_normalizers(definition: dict[str, Any]) -> None:
    sequence = {"type": "Sequence", "pretokenizers": [_SPLIT, _BYTE_LEVEL]}
    assert read_byte_bpe({**definition, "pre_tokenizer": sequence}).pattern == r"\p{L}+|."
    digits = [{"type": "Digits", "individual_digits": True}, {**_BYTE_LEVEL, "use_regex": True}]
    assert (
        r"|\s+(?![^\s\p{N}])|"
        in read_byte_bpe({**definition, "pre_tokenizer": {"type": "Sequence", "pretokenizers": digits}}).pattern
    )
    assert read_byte_bpe({**definition, "normalizer": {"type": "NFC"}}).nfc
    assert not read_byte_bpe({**definition, "normalizer": {"type": "Sequence", "normalizers": []}}).nfc


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pre_tokenizer": None}, "its pre-tokenizer is none"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, "its pre-tokenizer is Metaspace"),
        ({"pre_tokenizer": {**_BYTE_LEVEL, "add_prefix_space": True}}, "its pre-tokenizer is ByteLevel"),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [_SPLIT, _SPLIT, _BYTE_LEVEL]}},
            r"its pre-tokenizer is Split \+ Split \+ ByteLevel",
        ),
        ({"normalizer": {"type": "Lowercase"}}, "its normalizer is Lowercase"),
        ({"model": {"type": "Unigram", "vocab": []}}, "its model is Unigram"),
    ],
)
def test_other_kinds_are_named(definition: dict[str, Any], changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(NoFastPathError, match=reason):
        read_byte_bpe({**definition, **changes})


def _model(merges: list[list[str]], tmp_path: Path, **options: Any) -> dict[str, Any]:
    """The byte tokenizer with these merges, their results being tokens 258, 259, ..."""
    definition = json.loads((byte_tokenizer(tmp_path) / "tokenizer.json").read_text())
    vocab = definition["model"]["vocab"]
    for merge in merges:
        vocab.setdefault("".join(merge), len(vocab))
    definition["model"].update(merges=merges, **options)
    return definition


def test_merges_that_tiktoken_would_take_otherwise_are_found(tmp_path: Path) -> None:
    # "abc" can only come from "ab" and "c", but "bc" goes first: tokenizers never makes it, tiktoken would.
    merges = [["b", "c"], ["a", "b"], ["ab", "c"]]
    definition = _model(merges, tmp_path)
    assert len(Tokenizer.from_str(json.dumps(definition)).encode("abc").ids) == 2
    with pytest.raises(NoFastPathError, match="tiktoken would merge b'a' and b'bc'"):
        read_byte_bpe(definition)
    # Where the pair is listed as well, both make it.
    assert read_byte_bpe(_model([["b", "c"], ["a", "b"], ["ab", "c"], ["a", "bc"]], tmp_path)).ranks[b"abc"] == 258


def test_tokens_out_of_reach_are_left_out_or_kept_as_whole_words(tmp_path: Path) -> None:
    definition = _model([["a", "b"], ["c", "d"]], tmp_path)
    definition["model"]["vocab"]["xyz"] = 260
    assert b"xyz" not in read_byte_bpe(definition).ranks
    definition["model"]["ignore_merges"] = True
    assert read_byte_bpe(definition).ids[read_byte_bpe(definition).ranks[b"xyz"]] == 260


def test_many_added_tokens(tmp_path: Path, definition: dict[str, Any]) -> None:
    token = {"id": 0, "content": "<x>", "special": False}
    assert read_byte_bpe({**definition, "added_tokens": [token]}).added_tokens == ("<x>",)
    with pytest.raises(NoFastPathError, match="65 added tokens"):
        read_byte_bpe({**definition, "added_tokens": [token] * 65})
