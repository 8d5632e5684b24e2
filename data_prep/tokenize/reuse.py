"""Whether a finished store is what a config makes now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_prep.read import InputFile, Source, content_hash
from data_prep.store import FILES, TokenStore
from data_prep.tokenize.tokenizer import DocumentTokenizer

_DIFFERENCES_SHOWN = 5


def differences(folder: Path, source: Source, tokenizer: DocumentTokenizer, files: Sequence[InputFile]) -> list[str]:
    """What the store was made from that is otherwise now, a line each; files by content, not by date."""
    manifest = TokenStore(folder).manifest
    found = []
    if manifest["tokenizer"]["hash"] != tokenizer.info.hash:
        found.append(f"tokenizer: made with {manifest['tokenizer']['path']}, now {tokenizer.info.path} (other ids)")
    then, today = manifest["options"], source.options()  # an option that is left out has its default
    for name in {**today, **then}:
        if then.get(name) != today.get(name):
            found.append(f"{name}: made with {then.get(name)!r}, now {today.get(name)!r}")
    entries = [json.loads(line) for line in (folder / FILES).read_text(encoding="utf-8").splitlines()]
    before: dict[str, list[dict[str, Any]]] = {}  # the parts of each file
    for entry in entries:
        before.setdefault(entry["name"], []).append(entry)
    now = {file.name: file for file in files}
    changes = [f"file {name}: gone" for name in before if name not in now]
    changes += [f"file {name}: new" for name in now if name not in before]
    changes += [f"file {name}: changed" for name in now if name in before and _changed(before[name], now[name])]
    found += changes[:_DIFFERENCES_SHOWN]
    if len(changes) > _DIFFERENCES_SHOWN:
        found.append(f"and {len(changes) - _DIFFERENCES_SHOWN} more files")
    return found


def _changed(before: Sequence[dict[str, Any]], now: InputFile) -> bool:
    if sum(part["num_bytes"] for part in before) != now.num_bytes:
        return True
    if all(part["mtime_ns"] == now.mtime_ns for part in before):
        return False
    return any(part["sha256"] != content_hash(_part(now, part)) for part in before)


def _part(file: InputFile, entry: dict[str, Any]) -> InputFile:
    """The part of a file that a store's entry speaks of."""
    span = entry.get("span")
    return file if span is None else replace(file, span=tuple(span), num_bytes=entry["num_bytes"])
