"""Ids of documents: control tokens are text, BOS and EOS are found, the hash is of what decides ids."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, trainers

from data_prep.errors import DataError
from data_prep.tokenize import load_tokenizer
from data_prep.tokenize import tokenizer as tokenizer_module
from tests.data_prep.corpus import BOS, EOS, byte_tokenizer, save_tokenizer, text_of

_SPECIAL = ["<unk>", BOS, EOS]
# The control token's letters are in the training text too, so that a model would learn them.
_TRAINING_TEXT = ["hello world foo bar </s> baz", "a </s> b", "return x"] * 20


def _train(kind: str) -> Tokenizer:
    if kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=60, special_tokens=_SPECIAL, unk_token="<unk>", show_progress=False
        )
    else:
        model, trainer_type = {
            "bpe": (models.BPE(unk_token="<unk>"), trainers.BpeTrainer),
            "bpe ignoring merges": (models.BPE(unk_token="<unk>", ignore_merges=True), trainers.BpeTrainer),
            "wordlevel": (models.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer),
            "wordpiece": (models.WordPiece(unk_token="<unk>"), trainers.WordPieceTrainer),
        }[kind]
        tokenizer = Tokenizer(model)
        trainer = trainer_type(vocab_size=200, special_tokens=_SPECIAL, show_progress=False)
    words = kind.startswith("word")
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit() if words else pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(_TRAINING_TEXT, trainer)
    return tokenizer


@pytest.mark.parametrize("kind", ["bpe", "bpe ignoring merges", "unigram", "wordlevel", "wordpiece"])
def test_control_tokens_in_a_text_are_text(tmp_path: Path, kind: str) -> None:
    tokenizer = load_tokenizer(str(save_tokenizer(_train(kind), tmp_path)))
    controls = {tokenizer.info.anchor_id, tokenizer.info.eos_id}
    for ids in tokenizer.encode(["a </s> b", "</s>", "x</s>y<s>", "<s> </s><s>", "\u2603 </s>"]):
        assert len(ids)
        assert not controls & set(ids.tolist())


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_texts_without_control_tokens_get_the_ids_of_the_plain_tokenizer(tmp_path: Path, kind: str) -> None:
    plain = _train(kind)
    tokenizer = load_tokenizer(str(save_tokenizer(plain, tmp_path)))
    texts = ["hello world", "foo bar baz return x", "  spaces \n and lines", "\u2603 unknown"]
    expected = [encoding.ids for encoding in plain.encode_batch(texts, add_special_tokens=False)]
    assert [ids.tolist() for ids in tokenizer.encode(texts)] == expected


def test_special_tokens_beyond_the_vocabulary_are_text_and_keep_later_ids(tmp_path: Path) -> None:
    plain = Tokenizer.from_file(str(byte_tokenizer(tmp_path / "bytes") / "tokenizer.json"))
    plain.add_special_tokens(["<|end_of_text|>"])
    plain.add_tokens([AddedToken("zebra", normalized=False)])
    tokenizer = load_tokenizer(str(save_tokenizer(plain, tmp_path / "more", eos="<|end_of_text|>")))
    assert tokenizer.info.eos_id == 258
    assert tokenizer.info.vocab_size == 260
    ids, zebra = tokenizer.encode(["a<|end_of_text|>b</s>", "zebra"])
    assert text_of(ids.tolist()) == "a<|end_of_text|>b</s>"
    assert zebra.tolist() == [259]  # an added token that is no control token is one


def test_no_bos_or_eos_is_added_and_nothing_is_cut_or_padded(tmp_path: Path) -> None:
    plain = Tokenizer.from_file(str(byte_tokenizer(tmp_path / "bytes") / "tokenizer.json"))
    plain.post_processor = processors.TemplateProcessing(single=f"{BOS} $A {EOS}", special_tokens=[(BOS, 0), (EOS, 1)])
    plain.enable_truncation(3)
    plain.enable_padding(length=8)
    tokenizer = load_tokenizer(str(save_tokenizer(plain, tmp_path / "more")))
    assert [text_of(ids.tolist()) for ids in tokenizer.encode(["hello", "x"])] == ["hello", "x"]


def test_anchor_is_bos_or_else_eos(tmp_path: Path) -> None:
    info = load_tokenizer(str(byte_tokenizer(tmp_path / "both"))).info
    assert (info.anchor_token, info.anchor_id, info.eos_id) == (BOS, 0, 1)
    info = load_tokenizer(str(byte_tokenizer(tmp_path / "eos", bos=None))).info
    assert (info.anchor_token, info.anchor_id, info.eos_id) == (EOS, 1, 1)


def test_what_the_files_leave_unsaid_comes_from_transformers(tmp_path: Path) -> None:
    folder = byte_tokenizer(tmp_path)
    expected = load_tokenizer(str(folder)).info
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": EOS, "tokenizer_class": "PreTrainedTokenizerFast"})
    )
    info = load_tokenizer(str(folder)).info
    assert (info.anchor_token, info.anchor_id, info.eos_id) == (EOS, 1, 1)  # that class has no BOS
    (folder / "special_tokens_map.json").write_text(json.dumps({"bos_token": {"content": BOS}}))
    assert load_tokenizer(str(folder)).info == expected


def test_the_hash_is_of_what_decides_ids(tmp_path: Path) -> None:
    folder = byte_tokenizer(tmp_path / "a")
    base = load_tokenizer(str(folder)).info.hash
    definition = json.loads((folder / "tokenizer.json").read_text())

    def hash_with(**changes: object) -> str:
        copy = tmp_path / "copy"
        copy.mkdir(exist_ok=True)
        (copy / "tokenizer_config.json").write_text((folder / "tokenizer_config.json").read_text())
        (copy / "tokenizer.json").write_text(json.dumps({**definition, **changes}, indent=4))
        return load_tokenizer(str(copy)).info.hash

    assert hash_with() == base
    assert hash_with(decoder=None, padding=None, version="1.0") == base
    model = definition["model"]
    assert hash_with(model={**model, "merges": ["a b"], "vocab": {**model["vocab"], "ab": 258}}) != base
    assert hash_with(model={**model, "merges": [["a", "b"]], "vocab": {**model["vocab"], "ab": 258}}) == hash_with(
        model={**model, "merges": ["a b"], "vocab": {**model["vocab"], "ab": 258}}
    )
    assert hash_with(model={key: value for key, value in model.items() if value not in (None, False, "")}) == base
    assert hash_with(normalizer={"type": "Lowercase"}) != base
    assert load_tokenizer(str(byte_tokenizer(tmp_path / "b", bos=None))).info.hash != base


@pytest.mark.parametrize(("size", "dtype"), [(65_536, "<u2"), (65_537, "<u4")])
def test_ids_are_16_bit_as_long_as_they_fit(tmp_path: Path, size: int, dtype: str) -> None:
    vocab = {BOS: 0, EOS: 1, **{f"w{index}": index for index in range(2, size)}}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=BOS))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    loaded = load_tokenizer(str(save_tokenizer(tokenizer, tmp_path)))
    assert (loaded.info.vocab_size, loaded.info.dtype) == (size, dtype)
    (ids,) = loaded.encode([f"w{size - 1} w2"])
    assert (ids.tolist(), ids.dtype.str) == ([size - 1, 2], dtype)


def test_survives_a_trip_to_another_process(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(byte_tokenizer(tmp_path)))
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.info == tokenizer.info
    assert copy.encode(["a</s>"])[0].tolist() == tokenizer.encode(["a</s>"])[0].tolist()


def test_long_lines_go_to_the_library_in_segments_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = load_tokenizer(str(byte_tokenizer(tmp_path)))
    monkeypatch.setattr(tokenizer_module, "SEGMENT_CHARACTERS", 1 << 12)
    tokenizer.encode(["the cat " * (1 << 12)])  # finds out where texts may be cut
    handed: list[int] = []
    whole = tokenizer._encode_whole
    monkeypatch.setattr(tokenizer, "_encode_whole", lambda texts: handed.extend(map(len, texts)) or whole(texts))
    (ids,) = tokenizer.encode(["the cat " * (1 << 14)])
    assert len(ids) == sum(handed) == 1 << 17
    assert max(handed) <= (1 << 12) + len("the cat ")
    handed.clear()
    assert [len(ids) for ids in tokenizer.encode(["a" * (1 << 17), "b"])] == [1 << 17, 1]
    assert handed == [1 << 17, 1]


def test_tokenizers_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        load_tokenizer(str(tmp_path / "missing"))
    with pytest.raises(DataError, match="has no eos_token"):
        load_tokenizer(str(byte_tokenizer(tmp_path / "a", eos=None)))
    with pytest.raises(DataError, match=r"'<\|eot\|>' is named as BOS or EOS but is not in its vocabulary"):
        load_tokenizer(str(byte_tokenizer(tmp_path / "b", eos="<|eot|>")))
    folder = byte_tokenizer(tmp_path / "c")
    (folder / "tokenizer.json").write_text('{"model": 1}')
    with pytest.raises(DataError, match=r"tokenizer\.json cannot be used"):
        load_tokenizer(str(folder))
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(DataError, match=r"tokenizer_config\.json is not JSON"):
        load_tokenizer(str(folder))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="cannot be loaded"):
        load_tokenizer(str(tmp_path / "empty"))


def test_data_preparation_imports_no_torch(tmp_path: Path) -> None:
    folder = byte_tokenizer(tmp_path)
    program = (
        "import sys; from data_prep import tokenize, pack; "
        f"tokenize.load_tokenizer({str(folder)!r}); "
        "print([name for name in ('torch', 'transformers', 'anchorcontext') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
