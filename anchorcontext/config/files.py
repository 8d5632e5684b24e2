"""Rules about files and folders that a config names: those that can be looked at are looked at.

A hub name, a remote address or a glob is left to run time.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from anchorcontext.errors import Problem

_TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "*.tiktoken", "tekken.json")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def is_local(path: str) -> bool:
    """Whether `path` is a path on this machine, or can only be meant as one.

    `name` and `owner/name` are hub names, unless `owner` is a folder here.
    """
    if "://" in path:
        return False
    if Path(path).expanduser().exists():
        return True
    if path.startswith((".", "/", "~")) or not _HUB_NAME.fullmatch(path):
        return True
    return "/" in path and Path(path.partition("/")[0]).is_dir()


def missing_path(key: str, path: str, fix: str) -> Iterator[Problem]:
    """A problem where `path` is local and nothing is there."""
    if path != MISSING and is_local(path) and not Path(path).expanduser().exists():
        yield Problem(key, path, f"not found: {fix}")


def model_problems(key: str, path: str, *, config_file: str = "config.json") -> Iterator[Problem]:
    """A problem where a local model or tokenizer folder is missing or lacks its `config_file`."""
    if path == MISSING or not is_local(path):
        return
    folder = Path(path).expanduser()
    if not folder.exists():
        yield Problem(key, path, "not found: give a folder in transformers format, or a hub name (owner/name)")
    elif not (folder / config_file).is_file():
        yield Problem(key, path, f"has no {config_file}: give a folder that save_pretrained of transformers wrote")


def tokenizer_problems(key: str, path: str) -> Iterator[Problem]:
    """A problem where a local tokenizer is missing, or its folder holds no file that a tokenizer is read from."""
    yield from missing_path(key, path, "give a tokenizer's folder, or a hub name (owner/name)")
    folder = Path(path).expanduser()
    if path != MISSING and folder.is_dir() and not any(any(folder.glob(name)) for name in _TOKENIZER_FILES):
        yield Problem(key, path, "has no tokenizer.json: give the folder of the model's tokenizer, or a hub name")


def weights_problems(key: str, path: str) -> Iterator[Problem]:
    """A problem where a local model folder that has a config.json holds no weights."""
    folder = Path(path).expanduser()
    if path == MISSING or not (folder / "config.json").is_file():
        return
    if not any(any(folder.glob(name)) for name in ("*.safetensors", "*.bin")):
        yield Problem(key, path, "has no weights (*.safetensors): give the folder of a trained model")


def source_problems(key: str, path: str) -> Iterator[Problem]:
    """A problem where a local source of documents is neither file nor folder; globs are left to the reader."""
    if path == MISSING or "://" in path or any(wild in path for wild in "*?["):
        return
    if not path or not Path(path).expanduser().exists():
        yield Problem(key, path or "''", "not found: give a file, a folder or a glob in quotes")


def index_problems(data: Any) -> Iterator[Problem]:
    """Problems of a pack index: missing, unreadable, or packed with other options than `data` has."""
    if data.index == MISSING:
        return
    manifest_file = Path(data.index).expanduser() / "manifest.json"
    if not manifest_file.is_file():
        yield Problem("data.index", data.index, f"no pack index there: make it with {_pack_command(data)}")
        return
    try:
        manifest = json.loads(manifest_file.read_text(encoding="utf-8"))
    except ValueError:
        yield Problem(
            "data.index", data.index, f"its manifest.json cannot be read: pack again with {_pack_command(data)}"
        )
        return
    other = _pack_command(dataclasses.replace(data, index="ANOTHER"))
    for name in ("window_tokens", "end_of_document"):
        wanted, packed = getattr(data, name), manifest.get(name)
        if wanted not in (MISSING, packed):
            fix = f"the index was packed with {name}={packed}: use that, or pack another with {other}"
            yield Problem(f"data.{name}", wanted, fix)


def _pack_command(data: Any) -> str:
    given = (f"data.{name}={getattr(data, name)}" for name in ("index", "window_tokens"))
    return " ".join(["`anchorcontext pack", *(text for text in given if not text.endswith(MISSING)), "...`"])
