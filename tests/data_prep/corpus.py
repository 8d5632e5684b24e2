"""Tiny tokenizers, corpora and stores for the tests of data preparation and of what reads it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from data_prep.pack import PackOptions, build_index
from data_prep.read import Source
from data_prep.store import TokenStore
from data_prep.tokenize import BuiltStore, build, build_stores, load_tokenizer, shards

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


def build_sources(folder: Path, *sources: Source, num_workers: int = 1, overwrite: bool = False) -> list[BuiltStore]:
    """The stores of some sources in `folder`/store, a token a byte."""
    tokenizer = load_tokenizer(str(byte_tokenizer(folder / "tokenizer")))
    return build_stores(sources, tokenizer, folder / "store", num_workers=num_workers, overwrite=overwrite)


def texts_of(store: TokenStore) -> list[str]:
    """The text of every document of a store that was made with `byte_tokenizer`."""
    found = []
    for shard in range(store.num_shards):
        tokens, begin = store.tokens(shard), 0
        for end in store.ends(shard).tolist():
            found.append(text_of(tokens[begin:end].tolist()))
            begin = end
    return found


def six_units(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A source of six units."""
    for number in range(12):
        write_jsonl(folder / f"{number:02d}.jsonl", [{"text": f"text {number} {line}"} for line in range(20)])
    size = (folder / "00.jsonl").stat().st_size
    plan = shards.plan_units
    monkeypatch.setattr(build, "plan_units", lambda files, source: plan(files, source, 2 * size + 50))
    return Source("many", str(folder))
