"""What `gpu_check` checks, one function per check. Each raises where something is wrong, and returns its figures."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig

from anchorcontext import WindowLayout, packed_attention, plan_context
from anchorcontext.attention import KERNELS, run_self_test
from anchorcontext.config.schema import TrainConfig
from anchorcontext.data.length_mixes import sample_window
from benchmarks.measure import error, exact, inputs, measure
from benchmarks.methods import Method, Shape
from data_prep.pack import PackOptions, build_index
from data_prep.read import Source
from data_prep.tokenize import build_stores, load_tokenizer

_TWO_BYTES = ("bfloat16", "float16")
KERNEL_DTYPES: dict[str, dict[str, tuple[str, ...]]] = {
    "cuda": {
        "flash": _TWO_BYTES,
        "flash3": _TWO_BYTES,
        "flash4": _TWO_BYTES,
        "flex": (*_TWO_BYTES, "float32"),
    },
    "cpu": {"cpu": (*_TWO_BYTES, "float32", "float64")},
}
"""Kernels to compare with `math`, and in which dtypes, by type of device."""

_FLEX_HEAD_SIZES = (16, 64, 128, 256)
"""FlexAttention is compiled for each, which takes seconds."""

_TOLERANCE = {torch.bfloat16: 3e-2, torch.float32: 1e-4}
_WINDOW_TOKENS = 128


class SkippedError(Exception):
    """A check that this machine cannot do; says why."""


def kernel(device: torch.device, name: str, dtype: str) -> dict[str, Any]:
    """A kernel against `math` for every head size it supports: output, logsumexp and gradients."""
    if reason := KERNELS[name].refusal(device):
        raise SkippedError(reason)
    sizes = _FLEX_HEAD_SIZES if name == "flex" else range(8, 257, 8)
    failures = []
    for size in sizes:
        try:
            run_self_test(name, device, getattr(torch, dtype), size)
        except Exception as error:
            failures.append(f"head size {size}: {error}")
    if failures:
        raise RuntimeError(f"{len(failures)} of {len(sizes)} head sizes fail; {failures[0]}")
    return {"head sizes": len(sizes)}


def exchange(device: torch.device, name: str) -> dict[str, Any]:
    """An exchange on all ranks against attention by definition in float64, with its gradients."""
    shape, dtype = Shape(8, 4, 64), torch.bfloat16 if device.type == "cuda" else torch.float32
    lengths = sample_window("web", 1024, 0)
    window = inputs(1024, shape, dtype, device)
    context = plan_context(WindowLayout(lengths, arm="document"), dist.get_world_size(), exchange=name)
    bound = context.bind(dist.group.WORLD)

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return packed_attention(query, key, value, bound)

    worst = error(Method((name,), bound.rows.to(device), attention), window, exact(lengths, window))
    if not worst < _TOLERANCE[dtype]:
        raise RuntimeError(f"largest relative error {worst:.1e}, allowed {_TOLERANCE[dtype]:.0e}")
    return {"largest relative error": f"{worst:.1e}"}


def zero_step(device: torch.device, stage: int, scratch: str) -> dict[str, Any]:
    """Two steps in a ZeRO stage; the losses are finite. Stage 0 in float32, the others in BF16."""
    folder = Path(scratch) / f"zero-{stage}"
    _train(_config(scratch, folder, stage, steps=2))
    return {"losses": " ".join(f"{line['loss']:.4f}" for line in _metrics(folder))}


def resume(device: torch.device, scratch: str) -> dict[str, Any]:
    """A step, a checkpoint, a new start, another step: the loss is that of the run in ZeRO 1 that went through."""
    through, folder = Path(scratch) / "zero-1", Path(scratch) / "resumed"
    for steps in (1, 2):
        _train(_config(scratch, folder, 1, steps))
    expected, found = (_metrics(run)[1]["loss"] for run in (through, folder))
    if not abs(found - expected) <= 1e-3 * abs(expected):
        raise RuntimeError(f"after resuming, the loss of step 2 is {found}, without a break {expected}")
    return {"loss of step 2": f"{found:.4f}"}


def export_model(device: torch.device, scratch: str) -> dict[str, Any]:
    """The model of the resumed run, exported and read back by a fresh process with transformers alone."""
    exported = _train(_config(scratch, Path(scratch) / "resumed", 1, steps=2), export_too=True)
    return {"files": len(list(exported.iterdir()))}


def attention_figures(device: torch.device) -> dict[str, Any]:
    """Seconds and peak memory of one layer's attention: 8/2 heads of 128, BF16, one rank; the least of three."""
    tokens = 32_768 if device.type == "cuda" else 512
    window = inputs(tokens, Shape(8, 2, 128), torch.bfloat16, device)
    context = plan_context(WindowLayout(sample_window("web", tokens, 0), arm="document"), 1).bind()

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return packed_attention(query, key, value, context)

    method = Method(("one rank",), context.rows.to(device), attention, whole=True)
    passes = [measure(method, window) for _ in range(4)][1:]  # the first one compiles and allocates
    least = {name: min(each[name] for each in passes) for name in ("seconds", "peak_mib")}
    return {"rows": tokens, "ms": f"{1000 * least['seconds']:.2f}", "peak MiB": f"{least['peak_mib']:.0f}"}


def _train(config: TrainConfig, export_too: bool = False) -> Path:
    """Train to the config's last step; returns the folder of the exported model, or of the run."""
    from anchorcontext.train.export import export
    from anchorcontext.train.loop import run_steps
    from anchorcontext.train.ranks import join_ranks
    from anchorcontext.train.run_folder import RunFolder
    from anchorcontext.train.setup import start

    folder = RunFolder(config.run.folder)
    with join_ranks(1) as ranks, folder.hold(ranks):
        run = start(config, folder, ranks)
        state = run_steps(run)
        exported = export(run, state) if export_too else folder.path
        run.engine.destroy()
    return exported


def _metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def _config(scratch: str, folder: Path, stage: int, steps: int) -> TrainConfig:
    """A tiny model on tiny data, made the first time."""
    data = Path(scratch) / "data"
    if not (data / "index").is_dir():
        _make_data(data)
    config = TrainConfig()
    config.attention.arm = "anchor"
    config.model.path = config.model.tokenizer = str(data / "model")
    config.model.init = "random"
    config.data.index, config.data.window_tokens = str(data / "index"), _WINDOW_TOKENS
    config.deepspeed.zero_stage = stage
    config.optim.lr = 1e-3
    config.training.precision = "float32" if stage == 0 else "bf16"
    config.training.steps, config.training.windows_per_step = steps, 4
    config.training.save_every_steps, config.training.log_every_steps = 1, 1
    config.run.name, config.run.folder = folder.name, str(folder)
    return config


def _make_data(folder: Path) -> None:
    """Sixty texts of a few letters, packed, a token a byte; a Llama of two layers, head size 16, as config alone."""
    model = folder / "model"
    model.mkdir(parents=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=258, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([], trainer)
    tokenizer.save(str(model / "tokenizer.json"))
    names = {"bos_token": special[0], "eos_token": special[1], "tokenizer_class": "PreTrainedTokenizerFast"}
    (model / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=258,
        max_position_embeddings=_WINDOW_TOKENS,
        bos_token_id=0,
        eos_token_id=1,
    ).save_pretrained(model)
    letters = random.Random(0)
    texts = ["".join(letters.choices("abcde ", k=letters.randint(3, 180))) for _ in range(60)]
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    source = Source("texts", str(folder / "texts.jsonl"))
    (built,) = build_stores([source], load_tokenizer(str(model)), folder / "store")
    build_index([built.store], PackOptions(window_tokens=_WINDOW_TOKENS, held_out_fraction=0.1), folder / "index")
