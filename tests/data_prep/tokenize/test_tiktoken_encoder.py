"""The tiktoken path: the same ids as tokenizers, or not taken; long and pathological texts."""

from __future__ import annotations

import json
import pickle
import random
import string
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, normalizers

from data_prep.tokenize import DocumentTokenizer, load_tokenizer, tokenizer
from data_prep.tokenize.proof import tricky_texts
from data_prep.tokenize.tiktoken_encoder import TiktokenEncoder
from tests.data_prep.corpus import byte_tokenizer, save_tokenizer, word_tokenizer


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[DocumentTokenizer, DocumentTokenizer]:
    """The same tokenizer without and with tiktoken; its proof is the full one."""
    folder = str(word_tokenizer(tmp_path_factory.mktemp("words")))
    slow, fast = load_tokenizer(folder), load_tokenizer(folder)
    said = fast.use_fast_path(["a sample"])
    assert said.startswith("tiktoken, whose ids are those of tokenizers on ")
    return slow, fast


@pytest.fixture(autouse=True)
def few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code points are tried once, by `pair`."""
    monkeypatch.setattr(tokenizer, "torture_texts", tricky_texts)


@given(st.text(max_size=300))
@settings(deadline=None)
def test_any_text_gets_the_same_ids(pair: tuple[DocumentTokenizer, DocumentTokenizer], text: str) -> None:
    slow, fast = pair
    (expected,), (found,) = slow.encode([text]), fast.encode([text])
    assert found.tolist() == expected.tolist()
    assert found.dtype.str == expected.dtype.str


def test_goes_to_another_process_with_its_path(pair: tuple[DocumentTokenizer, DocumentTokenizer]) -> None:
    copy = pickle.loads(pickle.dumps(pair[1]))
    assert copy._fast is not None
    assert copy.encode(["a b </s>"])[0].tolist() == pair[0].encode(["a b </s>"])[0].tolist()


_LONG = {
    "one letter": "a" * 1_000_000,
    "hex": "".join(random.Random(0).choices("0123456789abcdef", k=1_000_000)),
    "random letters": "".join(random.Random(0).choices(string.ascii_letters, k=1_000_000)),
    "spaces": " " * 1_000_000 + "x",
    "line ends": "\n" * 1_000_000 + "x",
    "marks": "=" * 1_000_000 + "a",
    "digits": "1" * 1_000_000,
    "ideographs": "\u4e2d\u6587" * 300_000,
    "words": "the cat sat on the mat, " * 60_000,
}


_SLOW = {"line ends", "marks", "digits", "ideographs"}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in _SLOW)) for kind in _LONG])
def test_a_megabyte_of(
    kind: str, pair: tuple[DocumentTokenizer, DocumentTokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same ids, and no character is handed to tiktoken more than once, nor to tokenizers after that."""
    slow, fast = pair
    (expected,) = slow.encode([_LONG[kind]])
    handed = {"tiktoken": 0, "tokenizers": 0}
    ranks, whole = TiktokenEncoder._ranks, DocumentTokenizer._encode_whole

    def counted_ranks(encoder: TiktokenEncoder, text: str) -> np.ndarray | None:
        handed["tiktoken"] += len(text)
        return ranks(encoder, text)

    def counted_whole(loaded: DocumentTokenizer, texts: Sequence[str]) -> list[np.ndarray]:
        handed["tokenizers"] += sum(map(len, texts))
        return whole(loaded, texts)

    monkeypatch.setattr(TiktokenEncoder, "_ranks", counted_ranks)
    monkeypatch.setattr(DocumentTokenizer, "_encode_whole", counted_whole)
    (found,) = fast.encode([_LONG[kind]])
    assert np.array_equal(found, expected)
    assert handed["tiktoken"] == len(_LONG[kind])
    assert handed["tokenizers"] in (0, len(_LONG[kind]))


@pytest.mark.parametrize("length", [199, 200, 5_000, 70_000])
def test_runs_without_a_place_to_cut_are_taken_up_at_a_tokens_border(
    length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_prep.tokenize.tiktoken_encoder._RUN_MARGIN", 64)
    monkeypatch.setattr("data_prep.tokenize.tiktoken_encoder._TAIL_TOKENS", 4)
    monkeypatch.setattr(tokenizer, "SEGMENT_CHARACTERS", 300)
    slow = load_tokenizer(str(word_tokenizer(tmp_path)))
    fast = load_tokenizer(str(tmp_path))
    fast.use_fast_path([])
    fast._fast._characters = 300  # type: ignore[union-attr]
    chance = random.Random(length)
    for letters in ("the", "a", "=-", "\u4e2d\u6587the", "aA"):
        text = "x. " + "".join(chance.choices(letters, k=length)) + " end"
        assert fast.encode([text])[0].tolist() == slow._encode_whole([text])[0].tolist()


def test_added_tokens_and_nfc(tmp_path: Path) -> None:
    plain = Tokenizer.from_file(str(word_tokenizer(tmp_path / "words") / "tokenizer.json"))
    plain.normalizer = normalizers.NFC()
    plain.add_tokens([AddedToken("<tool K>", normalized=True)])
    folder = str(save_tokenizer(plain, tmp_path / "more"))
    slow, fast = load_tokenizer(folder), load_tokenizer(folder)
    assert fast.use_fast_path([]).startswith("tiktoken")
    for text in ("cafe\u0301 the", "a<tool K>b", "<tool \u212a> the", "<tool L>"):  # the Kelvin sign becomes K
        assert fast.encode([text])[0].tolist() == slow.encode([text])[0].tolist()


def test_bytes_that_the_vocabulary_lacks(tmp_path: Path) -> None:
    folder = byte_tokenizer(tmp_path)
    definition = json.loads((folder / "tokenizer.json").read_text())
    del definition["model"]["vocab"]["q"]
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    slow, fast = load_tokenizer(str(folder)), load_tokenizer(str(folder))
    assert fast.use_fast_path([]).startswith("tiktoken")
    (found,) = fast.encode(["aqb quit"])
    assert found.tolist() == slow.encode(["aqb quit"])[0].tolist()
    assert len(found) == 6  # tokenizers leaves the byte out


def test_a_difference_is_found_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = load_tokenizer(str(word_tokenizer(tmp_path)))
    encode = tokenizer.TiktokenEncoder.encode
    monkeypatch.setattr(
        tokenizer.TiktokenEncoder,
        "encode",
        lambda self, text: encode(self, text)[:-1] if "oddity" in text else encode(self, text),
    )
    assert "tiktoken gives other ids for 'oddity'" in fast.use_fast_path(["fine", "oddity"])
    assert fast._fast is None


def test_without_tiktoken_tokenizers_does_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    fast = load_tokenizer(str(byte_tokenizer(tmp_path)))
    assert fast.use_fast_path([]) == "tokenizers (Hugging Face), because tiktoken is not installed"
    assert fast.encode(["ab"])[0].tolist() == load_tokenizer(str(tmp_path)).encode(["ab"])[0].tolist()
