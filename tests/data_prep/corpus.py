"""Tiny tokenizers, corpora and stores for the tests of data preparation and of what reads it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from data_prep.pack import PackOptions, build_index
from data_prep.read import Source
from data_prep.store import TokenStore
from data_prep.tokenize import build_stores, load_tokenizer

BOS, EOS = "<s>", "</s>"


def save_tokenizer(tokenizer: Tokenizer, folder: Path, bos: str | None = BOS, eos: str | None = EOS) -> Path:
    """Write a tokenizer as transformers would, with its BOS and EOS named."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": bos, "eos_token": eos, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def byte_tokenizer(folder: Path, **special: str | None) -> Path:
    """A token a byte: ids 0 BOS, 1 EOS, then the bytes; so lengths of texts are lengths of documents."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=258,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([], trainer)
    return save_tokenizer(tokenizer, folder, **special)


def word_tokenizer(folder: Path) -> Path:
    """A byte-level BPE that knows some hundred pieces of words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    words = [
        "the cat sat on the mat, and the dog ran away. ",
        "aaaaaaaa ==== 123 12 \u4e2d\u6587 THE Cat\n\n    x = y(x)\n",
    ]
    tokenizer.train_from_iterator([*words * 20, *["the", "other", "this", "that", "then", "there"]], trainer)
    return save_tokenizer(tokenizer, folder)


def write_jsonl(path: Path, records: Iterable[Any]) -> Path:
    """JSON lines, gzipped where the name says so; a record that is bytes is written as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    data = b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def make_store(folder: Path, texts: Sequence[str], name: str = "texts") -> TokenStore:
    """The store of one source of these texts, a token a byte."""
    path = write_jsonl(folder / f"{name}.jsonl", ({"text": text} for text in texts))
    tokenizer = load_tokenizer(str(byte_tokenizer(folder / "tokenizer")))
    return build_stores([Source(name, str(path))], tokenizer, folder / "store")[0].store


def make_index(folder: Path, texts: Sequence[str] | Mapping[str, Sequence[str]], **options: Any) -> Path:
    """The folder of a pack index of these texts (one source, or several by name)."""
    sources = texts if isinstance(texts, Mapping) else {"texts": texts}
    stores = [make_store(folder, of_source, name) for name, of_source in sources.items()]
    return build_index(stores, PackOptions(**options), folder / "index").index.folder


def text_of(ids: Iterable[int]) -> str:
    """The text of byte ids, anchor and EOS as ^ and $."""
    alphabet = ["^", "$", *sorted(pre_tokenizers.ByteLevel.alphabet())]  # ASCII letters stand for themselves
    return decoders.ByteLevel().decode([alphabet[index] for index in ids])


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
