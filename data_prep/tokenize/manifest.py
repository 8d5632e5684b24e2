"""The manifest of a finished store: gathered from its units' records, and compared with a config."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from data_prep.disk import CheckedFile, read_json, write_file, write_json
from data_prep.errors import DataError
from data_prep.read import InputFile, Source, check_bad, content_hash
from data_prep.store import FILES, FORMAT_VERSION, MANIFEST, SKIPPED, TokenStore, store_hash
from data_prep.tokenize.shard_writer import PARTS, record_file, skipped_file
from data_prep.tokenize.shards import PLAN, Unit
from data_prep.tokenize.tokenizer import DocumentTokenizer

_DIFFERENCES_SHOWN = 5


def finish_store(
    source: Source,
    units: Sequence[Unit],
    sample: dict[str, Any] | None,
    folder: Path,
    tokenizer: DocumentTokenizer,
) -> None:
    """Gather the units' records into the manifest, which makes the folder a store.

    Raises:
        DataError: no document is left, or too many records were bad; the shards stay.
    """
    records: list[dict[str, Any]] = [read_json(record_file(folder, unit.number)) for unit in units]
    inputs = _with_lines_before([entry for record in records for entry in record.pop("inputs")])
    skipped: dict[str, int] = {}
    for reason, count in itertools.chain.from_iterable(record["skipped"].items() for record in records):
        skipped[reason] = skipped.get(reason, 0) + count
    check_bad(source, sum(record["documents"] for record in records), skipped)
    lists = {
        SKIPPED: _gather_skipped(folder, [skipped_file(folder, unit.number) for unit in units], inputs),
        FILES: write_file(folder / FILES, "".join(json.dumps(entry) + "\n" for entry in inputs).encode()),
    }
    manifest: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "source": source.name,
        "tokenizer": asdict(tokenizer.info),
        "dtype": tokenizer.info.dtype,
        "options": source.options(),
        "counts": {
            "files": len({entry["name"] for entry in inputs}),
            "documents": sum(record["documents"] for record in records),
            "tokens": sum(record["tokens"] for record in records),
            "text_bytes": sum(record["text_bytes"] for record in records),
            "skipped": dict(sorted(skipped.items())),
        },
        **({} if sample is None else {"sample": sample}),
        "lists": lists,
        "shards": records,
    }
    if not manifest["counts"]["documents"]:
        if sample is not None:
            raise DataError(f"source {source.name}: limit={source.limit} takes none of its documents: raise it")
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(skipped.items()))
        raise DataError(
            f"source {source.name}: not one document is left; its records: {reasons}. See the first of them in "
            f"{folder / SKIPPED}"
        )
    write_json(folder / MANIFEST, {**manifest, "hash": store_hash(manifest)})
    sweep(folder)


def sweep(folder: Path) -> None:
    """Remove what only an unfinished store needs."""
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    (folder / PLAN).unlink(missing_ok=True)


def _with_lines_before(inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Say of each part of a file how many of the file's lines are before it, instead of how many it has."""
    seen: dict[str, int] = {}
    found = []
    for entry in inputs:
        if (lines := entry.pop("lines", None)) is not None:
            entry = {**entry, "lines_before": seen.get(entry["name"], 0)}
            seen[entry["name"]] = entry["lines_before"] + lines
        found.append(entry)
    return found


def _gather_skipped(folder: Path, parts: Sequence[Path], inputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Every unit's list of skipped records in one, with the lines of whole files; its size and checksum."""
    gathered = CheckedFile(folder / SKIPPED)
    try:
        for line in itertools.chain.from_iterable(_lines(path) for path in parts):
            entry = json.loads(line)
            origin = inputs[entry["input"]]
            number = entry["line"] + origin.get("lines_before", 0)
            where = f"{origin['name']}:{number}" if number else origin["name"]
            said = {"where": where, "reason": entry["reason"], "detail": entry["detail"]}
            gathered.write((json.dumps(said, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))
        return gathered.commit()
    except BaseException:
        gathered.discard()
        raise


def _lines(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        yield from file


def differences(folder: Path, source: Source, tokenizer: DocumentTokenizer, files: Sequence[InputFile]) -> list[str]:
    """What the store was made from that is different now, one line per difference; files by content, not by date."""
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
