"""Tokenizing rates, in tokens per CPU second, and memory: the whole path compared with its parts.

The tokenizer is Llama-3's, from the package llama-models (under Llama's licence; only this benchmark
needs it): `pip install --no-deps llama-models`. The text is the Python and Markdown of this environment.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import random
import shutil
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tiktoken
from tokenizers import Tokenizer

from benchmarks.figures import Figure
from data_prep.read import Source
from data_prep.tokenize import DocumentTokenizer, build_stores, load_tokenizer
from data_prep.tokenize.byte_bpe import read_byte_bpe

_CHARACTERS = 30_000_000
_SLOW_SHARE = 6  # the slower methods run on one text in so many
_LINE_BYTES = 100_000_000
_REPEATS = 7  # the library's own time varies by 10%
_COPIES = (2, 8)
_UNIT_BYTES = 16 << 20  # a larger file is a unit of its own
_MIB = 2**20


def figures(folder: Path) -> Iterator[Figure]:
    """Measure in a folder; yields nothing if the tokenizer is not installed."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer_folder = _llama(folder / "llama3")
    if tokenizer_folder is None:
        print("tokenizing is not measured: pip install --no-deps llama-models")
        return
    texts = _texts()
    corpus = folder / "corpus"
    corpus.mkdir()
    for number in range(4):
        lines = [json.dumps({"text": text}) + "\n" for text in texts[number::4]]
        (corpus / f"{number}.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode(), 6))
    tokenizer = load_tokenizer(str(tokenizer_folder))
    print(tokenizer.use_fast_path(texts[:100]))
    encoding = _bare_tiktoken(tokenizer_folder)

    def bare() -> int:
        return sum(len(encoding.encode_to_numpy(text, disallowed_special=())) for text in texts)

    def whole(path: Path = corpus, chosen: DocumentTokenizer = tokenizer) -> int:
        shutil.rmtree(folder / "store", ignore_errors=True)
        sources = [Source("bench", str(path))]
        # no switch to the fast path: `chosen` stays as it is
        built = build_stores(sources, chosen, folder / "store", fast_path_bytes=sys.maxsize)
        return built[0].store.num_tokens

    few = texts[::_SLOW_SHARE]
    (folder / "few").mkdir()
    lines = [json.dumps({"text": text}) for text in few]
    (folder / "few" / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode(), 6))
    slow = load_tokenizer(str(tokenizer_folder))
    backend = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    backend.encode_special_tokens = True
    by_tiktoken, fast_path, by_tokenizers, slow_path, by_map = _rates(
        bare,
        whole,
        lambda: sum(len(e) for e in backend.encode_batch_fast(few, add_special_tokens=False)),
        lambda: whole(folder / "few", slow),
        _datasets_map(tokenizer_folder, few),
    )
    for name, rates in (
        ("tiktoken's encode_to_numpy", by_tiktoken),
        ("jsonl.gz to token store", fast_path),
        ("tokenizers' encode_batch_fast", by_tokenizers),
        ("datasets.map", by_map),
    ):
        yield Figure(name, float(np.median(rates)) / 1e6, "M tokens/CPU-s")
    for name, rates, others, unit, least in (
        ("jsonl.gz to token store, of tiktoken's rate", fast_path, by_tiktoken, "%", 0.85),
        ("jsonl.gz to token store, times datasets.map", fast_path, by_map, "x", 5),
        ("path without tiktoken, of encode_batch_fast's rate", slow_path, by_tokenizers, "%", 0.9),
    ):
        yield Figure(name, float(np.median(rates / others)), unit, at_least=least)
    yield _two_processes(corpus, tokenizer_folder, folder)
    yield _flat_memory(corpus, tokenizer_folder, folder)
    yield _long_line(tokenizer_folder, folder)


def _rates(*runs: Callable[[], int]) -> np.ndarray:
    """Tokens per CPU second, [runs, repeats]; each repeat runs all, because a machine's speed drifts."""
    rates = np.empty((len(runs), _REPEATS))
    for repeat in range(_REPEATS):
        for number, run in enumerate(runs):
            began = time.process_time()
            tokens = run()
            rates[number, repeat] = tokens / (time.process_time() - began)
    return rates


def _two_processes(corpus: Path, tokenizer_folder: Path, folder: Path) -> Figure:
    """Wall-clock speed-up, for enough work that starting processes hardly counts; needs two idle cores."""
    big = folder / "big"
    big.mkdir()
    for path in corpus.iterdir():
        packed = path.read_bytes()
        (big / path.name).write_bytes(packed * -(-_UNIT_BYTES // len(packed)))  # gzip files may be concatenated
    seconds: dict[int, float] = {}
    for workers in (1, 2, 1, 2):
        spent = _apart(big, tokenizer_folder, folder, workers).seconds
        seconds[workers] = min(spent, seconds.get(workers, spent))
    return Figure("two processes, times one", seconds[1] / seconds[2], "x", at_least=1.8)


def _flat_memory(corpus: Path, tokenizer_folder: Path, folder: Path) -> Figure:
    """Peak memory for more text, divided by that for less; both suffice for the proof of tiktoken's ids."""
    peaks = []
    for copies in _COPIES:
        copied = folder / f"{copies}-copies"
        copied.mkdir()
        for path in corpus.iterdir():
            for copy in range(copies):
                shutil.copy(path, copied / f"{copy}-{path.name}")
        peaks.append(_apart(copied, tokenizer_folder, folder).peak_mib)
    less, more = peaks
    name = f"peak memory for {_COPIES[1] // _COPIES[0]} times the corpus ({more:,.0f} MiB), over that for it"
    return Figure(name, more / less, "x", at_most=1.1)


def _long_line(tokenizer_folder: Path, folder: Path) -> Figure:
    chance = random.Random(0)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(1, 9))) for _ in range(5000)]
    text = " ".join(chance.choices(words, k=_LINE_BYTES // 6))[:_LINE_BYTES]
    path = folder / "line.jsonl"
    path.write_text(json.dumps({"text": text}) + "\n")
    peak = _apart(path, tokenizer_folder, folder).peak_mib
    return Figure("peak memory, one line of 100 MB", peak, "MiB", at_most=1000)


class _Spent(NamedTuple):
    seconds: float
    peak_mib: float


def _apart(path: Path, tokenizer_folder: Path, folder: Path, workers: int = 1) -> _Spent:
    """What building a store costs in a separate process."""
    program = [sys.executable, "-m", "benchmarks.tokenizing", str(path), str(tokenizer_folder)]
    with tempfile.TemporaryDirectory(dir=folder) as store:
        done = subprocess.run([*program, store, str(workers)], capture_output=True, text=True, check=True)
    return _Spent(*json.loads(done.stdout))


def _spend(path: str, tokenizer_folder: str, store: str, workers: str) -> _Spent:
    """Build a store as `pack` does; the seconds exclude the proof of tiktoken's ids, which is the same for any text."""
    began = [time.monotonic()]
    build_stores(
        [Source("bench", path)],
        load_tokenizer(tokenizer_folder),
        Path(store),
        num_workers=int(workers),
        on_path=lambda said: began.append(time.monotonic()),
    )
    seconds = time.monotonic() - began[-1]
    # From the kernel: ru_maxrss would include what the parent held when it started this process.
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return _Spent(seconds, int(fields["VmHWM"].removesuffix("kB")) * 1024 / _MIB)


def _bare_tiktoken(tokenizer_folder: Path) -> tiktoken.Encoding:
    bpe = read_byte_bpe(json.loads((tokenizer_folder / "tokenizer.json").read_bytes()))
    return tiktoken.Encoding("bare", pat_str=bpe.pattern, mergeable_ranks=bpe.ranks, special_tokens={})


def _datasets_map(tokenizer_folder: Path, texts: list[str]) -> Callable[[], int]:
    import datasets
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_folder / "tokenizer.json"))
    tokenizer.model_max_length = sys.maxsize
    data = datasets.Dataset.from_dict({"text": texts})
    datasets.disable_progress_bars()

    def run() -> int:
        mapped = data.map(
            lambda batch: {"input_ids": tokenizer(batch["text"], add_special_tokens=False)["input_ids"]},
            batched=True,
            remove_columns=["text"],
            load_from_cache_file=False,
        )
        return sum(len(chunk.flatten()) for chunk in mapped.data.column("input_ids").chunks)

    return run


def _texts() -> list[str]:
    """Files of the environment in a seeded random order, until there is enough text."""
    folders = [Path(folder) for folder in site.getsitepackages()]
    paths = sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".md"))
    random.Random(0).shuffle(paths)
    texts, left = [], _CHARACTERS
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="replace")
        if len(text) > 200 and left > 0:
            texts.append(text)
            left -= len(text)
    return texts


def _llama(folder: Path) -> Path | None:
    """Llama-3's tokenizer.json, converted from the package's ranks by transformers; None without the package."""
    found = importlib.util.find_spec("llama_models")
    if found is None or not found.submodule_search_locations:
        return None
    from transformers.convert_slow_tokenizer import TikTokenConverter

    special = ["<|begin_of_text|>", "<|end_of_text|>", *(f"<|reserved_special_token_{i}|>" for i in range(254))]
    model = Path(next(iter(found.submodule_search_locations))) / "llama3" / "tokenizer.model"
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer = TikTokenConverter(vocab_file=str(model), pattern=pattern, extra_special_tokens=special).converted()
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": special[0], "eos_token": special[1]}))
    return folder


if __name__ == "__main__":
    print(json.dumps(_spend(*sys.argv[1:])))
