"""One unit of work: input files, or a part of one -> one shard of the token store.

A unit depends on its input alone, so its bytes are the same whichever process writes them, and a shard that is
finished is never written again. One that was begun resumes at its last checkpoint.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.disk import digest_file, held, read_json
from data_prep.errors import DataError
from data_prep.read import InputFile, Source, open_records, split_file
from data_prep.tokenize.shard_writer import PARTS, ShardWriter, checkpoint_file, growing_file, record_file
from data_prep.tokenize.tokenizer import DocumentTokenizer

PLAN = "plan.json"

# A unit ends at 16 MB on disk or 1,000 files, whichever comes first; both grow with the source, so that it has at
# most some 8,192 units, but a unit that could be cut stays below 1 GB.
_MIN_UNIT_BYTES = 16 << 20
_MAX_UNIT_BYTES = 1 << 30
_MIN_UNIT_FILES = 1000
_MAX_UNITS = 4096
_CHECKPOINT_SECONDS = 10.0


@dataclass(frozen=True)
class Unit:
    """Files, or parts of files, that make one shard."""

    number: int
    files: tuple[InputFile, ...]

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)


class Task(NamedTuple):
    """A unit for any process to do.

    Attributes:
        folder: the store.
        plan: digest of the plan that the unit is of (see `plan_digest`).
    """

    source: Source
    unit: Unit
    folder: Path
    plan: str


def plan_units(files: Sequence[InputFile], source: Source | None = None, unit_bytes: int | None = None) -> list[Unit]:
    """Cut large files where they can be cut, and group the parts, in order, up to `unit_bytes` or 1,000 files.

    A larger file that cannot be cut makes a unit by itself. A limit on files too, because opening a
    million tiny files takes long although they hold few bytes. The parts are numbered anew: the table
    and `files.jsonl` refer to parts. The plan depends on the files alone, never on the number of workers.
    """
    if unit_bytes is None:
        total = sum(file.num_bytes for file in files)
        unit_bytes = min(max(_MIN_UNIT_BYTES, total // _MAX_UNITS), _MAX_UNIT_BYTES)
    unit_files = max(_MIN_UNIT_FILES, len(files) // _MAX_UNITS)
    parts = itertools.chain.from_iterable(split_file(file, unit_bytes, source) for file in files)
    groups: list[list[InputFile]] = []
    room = 0
    for number, part in enumerate(parts):
        if not groups or part.num_bytes > room or len(groups[-1]) == unit_files:
            groups.append([])
            room = unit_bytes
        groups[-1].append(replace(part, number=number))
        room -= part.num_bytes
    return [Unit(number, tuple(group)) for number, group in enumerate(groups)]


def finished_record(folder: Path, unit: Unit) -> dict[str, Any] | None:
    """The record of a unit whose shard is on the disk already, else None."""
    path = record_file(folder, unit.number)
    return read_json(path) if path.is_file() else None


def plan_digest(folder: Path) -> str:
    """Identifies the plan by which a store is being made; empty if there is none."""
    path = folder / PLAN
    return digest_file(path) if path.is_file() else ""


def check_plan(folder: Path, plan: str) -> None:
    """Refuse to write for a plan that is no longer the folder's.

    Raises:
        DataError: it was begun anew from something else, or is finished.
    """
    if plan_digest(folder) != plan:
        raise DataError(
            f"{folder} is not made by this job's plan any more: another run finished it or began it anew, with other "
            "files, tokenizer or options. Plan the job again, or give it a folder of its own"
        )


def wait_for_workers(folder: Path) -> None:
    """Wait until no process of an earlier run writes there any more.

    Raises:
        DataError: one does not end.
    """
    for lock in (folder / PARTS).glob("*.lock"):
        with held(lock):
            pass


def write_shard(
    source: Source,
    tokenizer: DocumentTokenizer,
    unit: Unit,
    folder: Path,
    plan: str,
    on_bytes: Callable[[int], None],
) -> dict[str, Any]:
    """Tokenize a unit's files into shard `unit.number` of the store in `folder`, from its last checkpoint on.

    Returns:
        The unit's record: counts, reasons of skipping, checksums and the files as they were read.

    Raises:
        DataError: a file that cannot be read to its end, or that changed while it was read; another process
            writes the same shard; or the store is made by another plan than `plan`.
    """
    check_plan(folder, plan)  # before the lock, whose folder may be gone
    with held(folder / PARTS / f"{unit.number:05d}.lock"):
        check_plan(folder, plan)  # a run that begins anew removes the plan first, and then waits for this lock
        if (finished := finished_record(folder, unit)) is not None:
            return finished
        checkpoint = _last_checkpoint(folder, unit.number)
        inputs: list[dict[str, Any]] = checkpoint["inputs"] if checkpoint else []
        num_read: int = checkpoint["records"] if checkpoint else 0
        on_bytes(sum(file.num_bytes for file in unit.files[: len(inputs)]))
        writer = ShardWriter(folder, unit.number, tokenizer, checkpoint)
        try:
            due = time.monotonic() + _CHECKPOINT_SECONDS
            for file in unit.files[len(inputs) :]:
                with open_records(file, source, on_bytes) as records:
                    for record in itertools.islice(records, num_read, None):
                        writer.add(record, file)
                        num_read += 1
                        if time.monotonic() >= due:
                            writer.checkpoint({"inputs": inputs, "records": num_read})
                            due = time.monotonic() + _CHECKPOINT_SECONDS
                    content = records.finish()
                    lines = {} if file.span is None else {"lines": records.num_lines}
                inputs.append({**file.identity(), "sha256": content, **lines})
                num_read = 0
            return writer.commit(inputs)
        finally:
            writer.close()


def _last_checkpoint(folder: Path, number: int) -> dict[str, Any] | None:
    """Where an earlier process was, if all that it had written by then is still there."""
    path = checkpoint_file(folder, number)
    try:
        found = read_json(path) if path.is_file() else None
    except DataError:
        return None
    if found is None:
        return None
    for kind, size in found["sizes"].items():
        growing = growing_file(folder, number, kind)
        if not growing.is_file() or growing.stat().st_size < size:
            return None
    return found
