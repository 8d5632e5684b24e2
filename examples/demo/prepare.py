"""Prepares the demo's inputs: text, a tokenizer trained on it, and the config of a tiny LLaMA.

Run as `python examples/demo/prepare.py --output runs/demo/start`. It writes

    OUTPUT/classics.jsonl.gz   the novels, plays and poems of examples/data (one JSON object per document)
    OUTPUT/python/*.py         the top-level standard library modules of the Python that runs this
    OUTPUT/model/              tokenizer and config.json, as transformers loads them; no weights

The same Python version gives the same bytes. With your own model you need none of this: set
`data.tokenizer` and `model.path` to the model's folder.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, PreTrainedTokenizerFast

CLASSICS = Path(__file__).resolve().parents[1] / "data" / "classics.jsonl.gz"
BOS, EOS = "<s>", "</s>"
VOCAB_SIZE = 1024
BASE_WINDOW_TOKENS = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)

    classics = Path(shutil.copy(CLASSICS, output / CLASSICS.name))
    modules = copy_standard_library(output / "python")
    tokenizer = train_tokenizer(texts(classics, modules))
    save_model_folder(tokenizer, output / "model")
    print(f"{output}: {len(modules)} Python modules, {tokenizer.get_vocab_size()} tokens in the vocabulary")


def copy_standard_library(folder: Path) -> list[Path]:
    """Copy the standard library's top-level modules; returns the copies, sorted by name."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    if not sources:
        raise SystemExit("This Python has no sources of its standard library, which the demo needs as text.")
    return [Path(shutil.copyfile(source, folder / source.name)) for source in sources]


def texts(classics: Path, modules: list[Path]) -> Iterator[str]:
    """Every text of both sources."""
    with gzip.open(classics, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)["text"]
    for module in modules:
        yield module.read_text(encoding="utf-8")


def train_tokenizer(documents: Iterator[str]) -> Tokenizer:
    """A byte-level BPE that prepends BOS to a text, as LLaMA's does."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    bos_id = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, bos_id)])
    return tokenizer


def save_model_folder(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the tokenizer and the config of a LLaMA of about 1M parameters."""
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS)
    fast.save_pretrained(folder)
    settings_file = folder / "tokenizer_config.json"
    settings = json.loads(settings_file.read_text())
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # the name that both transformers 4 and 5 accept
    settings_file.write_text(json.dumps(settings, indent=2) + "\n")
    LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=BASE_WINDOW_TOKENS,
        rope_theta=10_000.0,
        initializer_range=0.06,  # the usual 0.02 suits widths of thousands; with 128 the model learns slowly
        tie_word_embeddings=True,
        bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
    ).save_pretrained(folder)


if __name__ == "__main__":
    main()
