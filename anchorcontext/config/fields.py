"""Rules for single fields: mandatory values, words to choose from, ranges of numbers.

Keys are dotted paths. A rule whose field a command lacks is skipped there, so the tables serve all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

from omegaconf import MISSING

from anchorcontext.config.errors import Problem
from anchorcontext.config.schema import EvaluateConfig, ExportDataConfig, InspectConfig, SimulateConfig, TrainConfig
from data_prep.pack.options import ALGORITHMS, END_OF_DOCUMENT, EXHAUSTED, LAST_WINDOWS, LONG_DOCUMENTS

GROUPS = (
    "model",
    "data",
    "mixture",
    "attention",
    "rope",
    "context_parallel",
    "deepspeed",
    "optim",
    "logger",
    "experiment",
)

CHOICES: dict[str, tuple[str, ...]] = {
    "model.init": ("pretrained", "random"),
    "data.end_of_document": END_OF_DOCUMENT,
    "data.algorithm": ALGORITHMS,
    "data.long_documents": LONG_DOCUMENTS,
    "data.last_windows": LAST_WINDOWS,
    "data.exhausted": EXHAUSTED,
    "attention.arm": ("full", "document", "document_reset", "anchor"),
    "attention.kernel": ("auto", "math", "cpu", "flash", "flash3", "flash4", "flex"),
    "rope.compute": ("float32", "bf16"),
    "context_parallel.exchange": ("gather", "ring", "ulysses", "ring_flash_attn"),
    "context_parallel.policy": ("auto", "contiguous", "chunks", "hybrid", "zigzag"),
    "deepspeed.offload_optimizer": ("none", "cpu"),
    "deepspeed.offload_parameters": ("none", "cpu"),
    "optim.schedule": ("constant", "linear", "cosine"),
    "logger.name": ("none", "wandb"),
    "training.precision": ("bf16", "float32"),
    "precision": ("float32", "bf16"),
    "split": ("train", "held_out"),
}
"""The words each of these fields takes."""

LISTS: dict[str, tuple[str, ...]] = {
    "splits": CHOICES["split"],
    "mixes": ("web", "long", "8K", "one_document"),
    "policies": CHOICES["context_parallel.policy"],
    "exchanges": CHOICES["context_parallel.exchange"],
}
"""The words each of these lists takes."""

NOT_NEEDED: dict[type, frozenset[str]] = {
    TrainConfig: frozenset({"data.store", "data.tokenizer"}),
    EvaluateConfig: frozenset({"data.store", "data.tokenizer", "data.window_tokens"}),
    InspectConfig: frozenset({"data.index", "data.store", "data.tokenizer", "data.window_tokens"}),
    ExportDataConfig: frozenset({"data.store", "data.tokenizer", "data.window_tokens"}),
    SimulateConfig: frozenset({"data.index", "data.store", "data.tokenizer", "data.window_tokens"}),
}
"""Mandatory fields of a shared group that a command does not read."""


@dataclass(frozen=True)
class Range:
    """The numbers a field takes: from `low` (without it where `open_low`) up to `high` likewise."""

    low: float
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def admits(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below and abs(value) < math.inf

    def __str__(self) -> str:
        low = f"more than {self.low:g}" if self.open_low else f"at least {self.low:g}"
        if self.high == math.inf:
            return low
        return f"{low} and {'less than' if self.open_high else 'at most'} {self.high:,}"


RANGES: dict[str, Range] = {
    "data.window_tokens": Range(2, 2**31 - 1),
    "data.held_out_fraction": Range(0, 1, open_high=True),
    "data.seed": Range(0, 2**63 - 1),
    "data.min_document_tokens": Range(1, 2**63 - 1),
    "data.total_tokens": Range(1, 2**63 - 1),
    "data.interleave_chunk_tokens": Range(0, 2**31 - 1),
    "order.balance_steps": Range(0),
    "rope.base": Range(1, open_low=True),
    "context_parallel.size": Range(1),
    "context_parallel.max_gathered_rows": Range(0),
    "context_parallel.costs.flops_per_second": Range(0, open_low=True),
    "context_parallel.costs.bytes_per_second": Range(0, open_low=True),
    "context_parallel.costs.query_heads": Range(1),
    "context_parallel.costs.key_heads": Range(1),
    "context_parallel.costs.head_dim": Range(1),
    "context_parallel.costs.bytes_per_element": Range(1),
    "context_parallel.head_groups": Range(1),
    "deepspeed.zero_stage": Range(0, 3),
    "optim.lr": Range(0, open_low=True),
    "optim.eps": Range(0, open_low=True),
    "optim.weight_decay": Range(0),
    "optim.max_grad_norm": Range(0),
    "optim.warmup_steps": Range(0),
    "training.steps": Range(1),
    "training.windows_per_step": Range(1),
    "training.micro_batch_windows": Range(1),
    "training.loss_chunk_rows": Range(1),
    "training.seed": Range(0, 2**32 - 1),
    "training.save_every_steps": Range(0),
    "training.keep_checkpoints": Range(1),
    "training.log_every_steps": Range(1),
    "workers": Range(0, 2**31 - 1),
    "window": Range(0),
    "boundary_tokens": Range(0),
    "max_pieces": Range(0),
    "windows": Range(0),
    "balance.windows_per_step": Range(1, 2**31 - 1),
    "balance.data_ranks": Range(1, 2**31 - 1),
    "balance.row_pairs": Range(0, 2**31 - 1),
    "balance.sample_windows": Range(1, 2**31 - 1),
    "window_tokens": Range(1),
    "file_tokens": Range(1),
    "loss_chunk_rows": Range(1),
}
"""The numbers each of these fields takes."""


def leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of a config with its dotted key; an empty dictionary is a leaf itself."""
    if is_dataclass(config):
        children = {field.name: getattr(config, field.name) for field in fields(config)}
    elif isinstance(config, dict) and config:
        children = config
    else:
        yield prefix, config
        return
    for name, child in children.items():
        yield from leaves(child, f"{prefix}.{name}" if prefix else str(name))


def field_problems(config: Any) -> Iterator[Problem]:
    """Fields that are missing or empty, or whose word or number is not one the field takes."""
    defaults = dict(leaves(type(config)()))
    needless = NOT_NEEDED.get(type(config), frozenset())
    for key, value in leaves(config):
        if value == MISSING:
            follows_another = "${" in str(defaults.get(key))  # which is missing itself, and reported
            if key not in needless and not follows_another:
                yield Problem(key, MISSING, how_to_give(key))
        elif value == "" and defaults.get(key, "") != "":
            yield Problem(key, "''", "is empty: give a value, or leave it out")
        elif key in CHOICES and value not in CHOICES[key]:
            yield Problem(key, value, f"choose one of {', '.join(CHOICES[key])}")
        elif key in LISTS and (unknown := [word for word in value if word not in LISTS[key]]):
            yield Problem(key, unknown[0], f"choose of {', '.join(LISTS[key])}")
        elif key in RANGES and value is not None and not RANGES[key].admits(value):
            yield Problem(key, value, f"must be {RANGES[key]}" + ("" if abs(value) < math.inf else ", and finite"))


def nested_problems(config: Any, prefix: str = "") -> Iterator[Problem]:
    """Lists and dictionaries in the place of a number or text of a dictionary or list: no type check refuses them."""
    hints = get_type_hints(type(config))
    for field in fields(config):
        key, value = f"{prefix}{field.name}", getattr(config, field.name)
        if is_dataclass(value):
            yield from nested_problems(value, f"{key}.")
        elif isinstance(value, dict | list):
            for name, item in value.items() if isinstance(value, dict) else enumerate(value):
                if is_dataclass(item):
                    yield from nested_problems(item, f"{key}.{name}.")
                elif isinstance(item, dict | list) and get_args(hints[field.name])[-1] in (str, int, float):
                    yield Problem(f"{key}.{name}", item, "must be one value, no list or dictionary")


def how_to_give(key: str) -> str:
    group = key.partition(".")[0]
    by_group = f", or choose a file of the group: {group}=NAME" if group in GROUPS else ""
    return f"must be given: {key}=VALUE{by_group}"
