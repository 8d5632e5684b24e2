"""Hugging Face Trainer with AnchorAttention: `python examples/trainer.py`.

It needs only three names from this project: `register`, `attn_implementation="anchor"` and
`AnchorCollator`. The collator packs the documents of a batch into one row, each preceded by its own
copy of the anchor. A document attends to itself and the anchor, and its loss is the same as if it
were alone. Trains a tiny LLaMA on the bytes of the novels in examples/data, in half a minute on a CPU.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

import anchorcontext

TEXTS = Path(__file__).parent / "data" / "classics.jsonl.gz"
ANCHOR, END = 256, 257
"""Token ids after those of the 256 bytes: the start of a document, which is its anchor, and its end."""


def documents(count: int, most_bytes: int = 600) -> list[dict[str, list[int]]]:
    """Paragraphs as token ids, of different lengths, without padding."""
    found: list[dict[str, list[int]]] = []
    with gzip.open(TEXTS, "rt", encoding="utf-8") as lines:
        for line in lines:
            for paragraph in json.loads(line)["text"].split("\n\n"):
                if len(paragraph) > 100:
                    found.append({"input_ids": list(paragraph.encode()[:most_bytes])})
                if len(found) == count:
                    return found
    return found


def train(steps: int, output: str) -> list[dict[str, Any]]:
    """Train a tiny model; returns what Trainer logged."""
    set_seed(0)
    anchorcontext.register()
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=64,
        intermediate_size=176,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        bos_token_id=ANCHOR,
        eos_token_id=END,
        attn_implementation="anchor",
    )
    arguments = TrainingArguments(
        output_dir=output,
        max_steps=steps,
        per_device_train_batch_size=8,
        learning_rate=3e-3,
        logging_steps=max(steps // 6, 1),
        remove_unused_columns=False,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=LlamaForCausalLM(config),
        args=arguments,
        train_dataset=documents(8 * steps),
        data_collator=anchorcontext.AnchorCollator(anchor_id=ANCHOR, end_id=END),
    )
    trainer.train()
    return trainer.state.log_history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--output", default="runs/trainer", help="output folder of Trainer")
    options = parser.parse_args()
    losses = [entry["loss"] for entry in train(options.steps, options.output) if "loss" in entry]
    print(f"loss per byte: {losses[0]:.2f} in the first steps, {losses[-1]:.2f} in the last")


if __name__ == "__main__":
    main()
