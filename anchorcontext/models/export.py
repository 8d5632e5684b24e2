"""A model folder that other programs load without edits.

transformers 4.57 and 5, vLLM and lm-evaluation-harness read `config.json` in different dialects, so
it holds both: `rope_parameters` beside `rope_theta` and `rope_scaling`, `dtype` beside
`torch_dtype`. Before a folder gets its name, a fresh process loads it with transformers alone and
compares logits, inverse frequencies and token ids with those of training.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers.processors import Sequence, TemplateProcessing
from torch import Tensor
from transformers import AutoTokenizer, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from anchorcontext.models.read_back import SAMPLE
from anchorcontext.rope.rotary import find_rotary
from data_prep.disk import sync_folder, sync_tree, write_json

PROVENANCE = "provenance.json"


@dataclass(frozen=True)
class Sample:
    """What training computes for a few tokens: ids [T], logits [T, V]."""

    ids: Tensor
    logits: Tensor


@torch.no_grad()
def sample_of(model: PreTrainedModel, ids: Tensor) -> Sample:
    """The model's logits for one sequence of ids [T], anchor first; collective where engines gather weights."""
    was_training = model.training
    model.eval()
    positions = torch.arange(len(ids), device=ids.device)[None]
    logits = model(input_ids=ids[None], position_ids=positions, use_cache=False).logits[0]
    model.train(was_training)
    return Sample(ids.cpu(), logits.float().cpu())


def export_model(
    folder: Path,
    model: PreTrainedModel,
    weights: Mapping[str, Tensor],
    tokenizer_path: str,
    anchor_id: int,
    provenance: Mapping[str, Any],
    sample: Sample,
) -> None:
    """Write `folder` whole and proven, or not at all. On one rank.

    Args:
        model: for its config; its own parameters may be divided among ranks.
        weights: the whole parameters by the model's own names, in the dtype to save.
        tokenizer_path: folder or hub name of the tokenizer the data was packed with.
        anchor_id: the token at the head of every piece, which the saved tokenizer adds exactly once.
        provenance: what `provenance.json` shall say; the anchor is added to it.
        sample: from `sample_of`, what the folder must give again.

    Raises:
        RuntimeError: weights that are not whole, or a folder that does not give the same.
    """
    _check_whole(model, weights)
    temporary = folder.with_name(f".tmp-{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    model.save_pretrained(temporary, state_dict=dict(weights))
    tokenizer, ids = _save_tokenizer(temporary, tokenizer_path, anchor_id, model.config.max_position_embeddings)
    _complete_configs(temporary, model, tokenizer, str(next(iter(weights.values())).dtype).removeprefix("torch."))
    anchor = {"id": anchor_id, "token": _token(tokenizer, anchor_id), "added_by_tokenizer": ids[0] == anchor_id}
    write_json(temporary / PROVENANCE, {**provenance, "anchor": anchor})
    _read_back(temporary, model, sample, ids)
    _open_to_readers(temporary)
    sync_tree(temporary)
    temporary.rename(folder)
    sync_folder(folder.parent)


def _open_to_readers(folder: Path) -> None:
    """Files as the umask would have them: weights are written readable by their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    for path in folder.iterdir():
        path.chmod(0o666 & ~mask)


def _check_whole(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> None:
    expected = [name for name, _ in model.named_parameters()]
    absent = [name for name in expected if name not in weights or weights[name].numel() == 0]
    if absent or len(expected) != len(weights):
        raise RuntimeError(f"{len(weights)} of {len(expected)} parameters to export; absent or empty: {absent[:3]}")


def _save_tokenizer(
    folder: Path, path: str, anchor_id: int, max_tokens: int
) -> tuple[PreTrainedTokenizerBase, list[int]]:
    """Save the tokenizer; returns it, and the ids it must give for `SAMPLE`.

    The anchor is BOS, or EOS where there is none: a model that was trained with it at the head of
    every document is to find it there.
    """
    tokenizer = AutoTokenizer.from_pretrained(path)
    ids = tokenizer(SAMPLE).input_ids
    if ids[:1] != [anchor_id]:
        anchor, backend = _token(tokenizer, anchor_id), tokenizer.backend_tokenizer
        add_anchor = TemplateProcessing(
            single=[anchor, "$A"], pair=[anchor, "$A", f"{anchor}:1", "$B:1"], special_tokens=[(anchor, anchor_id)]
        )
        backend.post_processor = Sequence([part for part in (backend.post_processor, add_anchor) if part is not None])
        ids = [anchor_id, *ids]
    tokenizer.model_max_length = max_tokens
    tokenizer.save_pretrained(folder)
    _edit_json(folder / "tokenizer_config.json", _plain_tokenizer_config)
    return tokenizer, ids


def _token(tokenizer: PreTrainedTokenizerBase, token_id: int) -> str:
    return str(tokenizer.convert_ids_to_tokens(token_id))


def _plain_tokenizer_config(config: dict[str, Any]) -> None:
    """What transformers 4.57 and 5 read alike: tokenizer.json alone says which tokens are added."""
    if config.get("tokenizer_class") is not None:
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    for key in ("add_bos_token", "add_eos_token", "backend", "is_local", "local_files_only"):
        config.pop(key, None)
    extra = config.get("extra_special_tokens")
    if isinstance(extra, list):  # a dictionary in 4.57, which has another key for lists
        config["additional_special_tokens"] = config.pop("extra_special_tokens")


def _complete_configs(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, dtype: str) -> None:
    rope = dict(model.config.rope_parameters)
    scaling = {key: value for key, value in rope.items() if key not in ("rope_theta", "partial_rotary_factor")}
    bos_id = model.config.bos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    eos_id = tokenizer.eos_token_id if model.config.eos_token_id is None else model.config.eos_token_id
    pad_id = model.config.pad_token_id

    def complete(config: dict[str, Any]) -> None:
        config |= {"rope_parameters": rope, "rope_theta": rope["rope_theta"], "dtype": dtype, "torch_dtype": dtype}
        config["rope_scaling"] = None if rope["rope_type"] == "default" else scaling
        if "partial_rotary_factor" in rope:
            config["partial_rotary_factor"] = rope["partial_rotary_factor"]
        config |= {"bos_token_id": bos_id, "eos_token_id": eos_id, "pad_token_id": pad_id, "use_cache": True}

    _edit_json(folder / "config.json", complete)
    if not (folder / "generation_config.json").exists():
        GenerationConfig.from_model_config(model.config).save_pretrained(folder)
    stop_id = eos_id[0] if isinstance(eos_id, list) else eos_id

    def complete_generation(config: dict[str, Any]) -> None:
        config["bos_token_id"] = bos_id
        config.setdefault("eos_token_id", eos_id)
        config["pad_token_id"] = config.get("pad_token_id", stop_id if pad_id is None else pad_id)

    _edit_json(folder / "generation_config.json", complete_generation)


def _edit_json(path: Path, edit: Any) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def _read_back(folder: Path, model: PreTrainedModel, sample: Sample, tokenizer_ids: list[int]) -> None:
    """Load the folder in a fresh process, as any other program would, and compare."""
    expected = folder / "expected.safetensors"
    rotary = find_rotary(model)
    save_file(
        {
            "ids": sample.ids,
            "logits": sample.logits,
            "inv_freq": rotary.inv_freq.cpu().contiguous(),
            "tokenizer_ids": torch.tensor(tokenizer_ids),
        },
        expected,
    )
    problems = fresh_process(folder, expected)
    if problems:
        raise RuntimeError(f"the exported model does not give what training gives:\n{problems}")
    expected.unlink()


def fresh_process(folder: Path, expected: Path, python: str = sys.executable) -> str:
    """Run `read_back.py` on its own; what differs, or how it failed; empty where all is the same."""
    launched = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    environment = {key: value for key, value in os.environ.items() if key not in launched}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    script = Path(__file__).with_name("read_back.py")
    done = subprocess.run(
        [python, str(script), str(folder), str(expected)], env=environment, capture_output=True, text=True
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr
