"""Token stores of all sources: reuse what is there, finish what was begun, refuse what differs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.disk import only_writer, read_json, remove_partial, write_file, write_json
from data_prep.errors import DataError
from data_prep.read import Document, Source, check_apart, check_has_documents, find_files, open_records, sample_files
from data_prep.store import FILES, FORMAT_VERSION, MANIFEST, SKIPPED, TokenStore, shard_file
from data_prep.tokenize.manifest import differences, finish_store, sweep
from data_prep.tokenize.pool import OnBytes, write_shards
from data_prep.tokenize.shard_writer import PARTS
from data_prep.tokenize.shards import (
    PLAN,
    Task,
    Unit,
    finished_record,
    plan_digest,
    plan_units,
    wait_for_workers,
)
from data_prep.tokenize.tokenizer import DocumentTokenizer

FAST_PATH_BYTES = 8 << 20
"""Of how much input the fast path's proof is worth its seconds."""

_SAMPLED_FILES = 8
_SAMPLED_CHARACTERS = 1 << 17


@dataclass(frozen=True)
class BuiltStore:
    """A finished store, and how it came about.

    Attributes:
        reused: it was there already, made from the same files, tokenizer and options.
        kept_shards: shards that an interrupted run had finished.
    """

    store: TokenStore
    reused: bool
    kept_shards: int


@dataclass(frozen=True)
class _Job:
    """What there is to do for one source; `reused` says nothing."""

    source: Source
    folder: Path
    units: list[Unit]
    sample: dict[str, Any] | None
    reused: bool


@dataclass(frozen=True)
class StorePlan:
    """Everything that is to be done for some sources.

    Attributes:
        kept: shards of each job that are finished already.
        digests: of each job's plan, as stored in its folder.
        tasks: the units that are left, to be done in any order by any process.
    """

    tokenizer: DocumentTokenizer
    jobs: list[_Job]
    kept: list[int]
    digests: list[str]
    tasks: list[Task]


def build_stores(
    sources: Sequence[Source],
    tokenizer: DocumentTokenizer,
    folder: Path,
    *,
    num_workers: int = 1,
    overwrite: bool = False,
    fast_path_bytes: int = FAST_PATH_BYTES,
    on_total: Callable[[str, int], None] = lambda name, num_bytes: None,
    on_bytes: OnBytes = lambda name, num_bytes: None,
    on_path: Callable[[str], None] = lambda said: None,
) -> list[BuiltStore]:
    """Make or reuse the token store `folder`/`source.name` of every source.

    Every source is checked for all that can be wrong with it before the first is tokenized.

    Args:
        num_workers: processes that tokenize; the bytes written do not depend on it.
        overwrite: make a store anew if it was made from other files, tokenizer or options.
        fast_path_bytes: from so much input on, try whether the tokenizer can take its fast path;
            with less, it keeps its current path.
        on_total: told what is left to read of each source, in bytes.
        on_bytes: told of every block read.
        on_path: told which library tokenizes, and why.

    Raises:
        DataError: no sources, a source without documents, an existing store that differs (names
            the fields), damaged input, or another process at work in the folder.
    """
    if not sources:
        raise DataError("no sources: name at least one under data.sources")
    with ExitStack() as stack:
        for source in sources:
            if _is_writable(folder / source.name):
                stack.enter_context(only_writer(folder / source.name))
        plan = plan_stores(
            sources,
            tokenizer,
            folder,
            overwrite=overwrite,
            fast_path_bytes=fast_path_bytes,
            on_total=on_total,
            on_path=on_path,
        )
        write_shards(plan.tasks, tokenizer, num_workers, on_bytes)
        return finish_stores(plan)


def plan_stores(
    sources: Sequence[Source],
    tokenizer: DocumentTokenizer,
    folder: Path,
    *,
    overwrite: bool = False,
    fast_path_bytes: int = FAST_PATH_BYTES,
    on_total: Callable[[str, int], None] = lambda name, num_bytes: None,
    on_path: Callable[[str], None] = lambda said: None,
) -> StorePlan:
    """The first part of `build_stores`: what is left to do, with the folders made ready for it.

    The caller holds the folders, or sees to it that nothing else writes there.
    """
    jobs = [_examine(source, tokenizer, folder / source.name, overwrite) for source in sources]
    kept = [_begin(job, tokenizer) for job in jobs]
    digests = [plan_digest(job.folder) for job in jobs]
    tasks: list[Task] = []
    for job, digest in zip(jobs, digests, strict=True):
        left = [] if job.reused else [unit for unit in job.units if finished_record(job.folder, unit) is None]
        on_total(job.source.name, sum(unit.num_bytes for unit in left))
        tasks += [Task(job.source, unit, job.folder, digest) for unit in left]
    if sum(task.unit.num_bytes for task in tasks) >= fast_path_bytes:
        on_path(tokenizer.use_fast_path([text for job in jobs if not job.reused for text in _sample(job)]))
    return StorePlan(tokenizer, jobs, kept, digests, tasks)


def finish_stores(plan: StorePlan) -> list[BuiltStore]:
    """The last part of `build_stores`, when every task of the plan is done.

    Raises:
        DataError: no document of a source is left, or too many of its records were bad.
    """
    for job in plan.jobs:
        if not job.reused:
            finish_store(job.source, job.units, job.sample, job.folder, plan.tokenizer)
    return [
        BuiltStore(TokenStore(job.folder), job.reused, count) for job, count in zip(plan.jobs, plan.kept, strict=True)
    ]


def _examine(source: Source, tokenizer: DocumentTokenizer, folder: Path, overwrite: bool) -> _Job:
    """Check everything that can be wrong with a source and its store; changes nothing."""
    check_apart(source, folder, "the token store", (MANIFEST, FILES, SKIPPED, shard_file(0, "tokens")))
    files, sample = sample_files(find_files(source), source)
    units = plan_units(files, source)
    if (folder / MANIFEST).is_file():
        try:
            found = differences(folder, source, tokenizer, files)
        except DataError as error:  # damaged, or of another format version
            found = [str(error)]
        if not found:
            return _Job(source, folder, units, sample, reused=True)
        if not overwrite:
            raise DataError(
                f"the token store {folder} is not what this config makes:\n"
                + "\n".join(f"  - {difference}" for difference in found)
                + "\nSet overwrite=true to make it anew (indexes of it must be packed again), or another data.store"
            )
    check_has_documents(source, files)
    return _Job(source, folder, units, sample, reused=False)


def _is_writable(folder: Path) -> bool:
    """Whether a store's folder must be locked: a finished one that we cannot write to is reused or refused."""
    return os.access(folder, os.W_OK) or not (folder / MANIFEST).is_file()


def _sample(job: _Job) -> list[str]:
    """The first documents of some files, spread over the source."""
    files = [file for unit in job.units for file in unit.files]
    texts = []
    for file in files[:: -(-len(files) // _SAMPLED_FILES)]:
        left = _SAMPLED_CHARACTERS
        with open_records(file, job.source) as records:
            for record in records:
                if isinstance(record, Document):
                    texts.append(record.text[:_SAMPLED_CHARACTERS])
                    left -= len(record.text)
                if left <= 0:
                    break
    return texts


def _begin(job: _Job, tokenizer: DocumentTokenizer) -> int:
    """Make the folder ready; the number of shards that an interrupted run of the same work had finished."""
    folder = job.folder
    if not _is_writable(folder):
        if not job.reused:
            raise DataError(
                f"the token store {folder} cannot be written to, and so not made anew: choose another data.store"
            )
        return 0
    if job.reused:
        sweep(folder)
        return 0
    plan = {
        "format_version": FORMAT_VERSION,
        "tokenizer": tokenizer.info.hash,
        "options": job.source.options(),
        "units": [[file.identity() for file in unit.files] for unit in job.units],
    }
    wait_for_workers(folder)
    interrupted = (folder / PLAN).is_file() and not (folder / MANIFEST).is_file()
    if not interrupted or read_json(folder / PLAN) != plan:
        _end_plan(folder)
        _clear(folder)
        (folder / PARTS).mkdir()
        write_json(folder / PLAN, plan)
    remove_partial(folder)
    return sum(finished_record(folder, unit) is not None for unit in job.units)


def _end_plan(folder: Path) -> None:
    """Remove the plan of other runs, so that their processes begin no shard, and wait for those already begun.

    Raises:
        DataError: one does not end: that run keeps its plan.
    """
    path = folder / PLAN
    if not path.is_file():
        return
    before = path.read_bytes()
    path.unlink()
    try:
        wait_for_workers(folder)
    except DataError:
        write_file(path, before)
        raise


def _clear(folder: Path) -> None:
    """Remove what earlier runs left; the manifest first, so that no half of a store looks whole."""
    (folder / MANIFEST).unlink(missing_ok=True)
    sweep(folder)
    for pattern in ("*.bin", FILES, SKIPPED):
        for path in folder.glob(pattern):
            path.unlink()
