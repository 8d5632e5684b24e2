"""Cutting long texts: the parts' ids are the whole text's, for every kind of tokenizer that allows it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from data_prep.tokenize.proof import tricky_texts
from data_prep.tokenize.segments import Cuts, choose_cuts, join

_WORDS = ["the cat sat on the mat, and the dog ran. ", "for x in range(10):\n    print(x)\n"] * 20


def _encoder(kind: str) -> tuple[Tokenizer, Sequence[str]]:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    if kind == "byte level":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif kind == "sentencepiece":  # as Llama-2: no pre-tokenizer, a space before every text
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    elif kind == "phrases":  # words are merged across their spaces
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\.|\n"), "isolated")
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(_WORDS, trainer)
    if kind == "sentencepiece":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        tokenizer.pre_tokenizer = pre_tokenizers.Split("\ufdd0", "isolated")  # never found: words are not cut
    return tokenizer, list(tokenizer.get_vocab())


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    return [np.array(found.ids) for found in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


@pytest.mark.parametrize(("kind", "drops_space"), [("byte level", False), ("sentencepiece", True), ("phrases", None)])
def test_the_cuts_that_a_tokenizer_bears(kind: str, drops_space: bool | None) -> None:
    tokenizer, vocab = _encoder(kind)
    cuts = choose_cuts(lambda texts: _encode(tokenizer, texts), tricky_texts(), vocab)
    assert (None if cuts is None else cuts.drops_space) == drops_space
    if cuts is None:
        return
    text = "".join(_WORDS)
    segments = list(cuts.segments(text, 50))
    assert len(segments) > 10
    (whole,) = _encode(tokenizer, [text])
    assert np.array_equal(join(_encode(tokenizer, segments)), whole)


@given(st.text("ab ,\n\u4e2d"), st.integers(1, 10))
def test_segments_are_the_text_again(text: str, characters: int) -> None:
    segments = list(Cuts("[a-z](?=[ ,])", drops_space=False).segments(text, characters))
    assert "".join(segments) == text
    assert all(len(segment) >= characters for segment in segments[:-1])


def test_a_text_without_a_place_is_one_segment() -> None:
    assert list(Cuts("[a-z](?= )", drops_space=True).segments("a" * 1000, 10)) == ["a" * 1000]
