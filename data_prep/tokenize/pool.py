"""Units of work over processes, with progress in bytes."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any

from data_prep.errors import DataError
from data_prep.read import Source, check_bad
from data_prep.tokenize.shards import Task, Unit, write_shard
from data_prep.tokenize.tokenizer import DocumentTokenizer

OnBytes = Callable[[str, int], None]
"""Told of every block read: source name, bytes."""

_POLL_SECONDS = 0.2

# What every task of a worker process shares; set once by `_start_worker`.
_tokenizer: DocumentTokenizer
_progress: Any
_stop: Any


def write_shards(tasks: Sequence[Task], tokenizer: DocumentTokenizer, num_workers: int, on_bytes: OnBytes) -> None:
    """Tokenize every unit; the bytes written do not depend on `num_workers`.

    Raises:
        DataError: the first unit that failed, a source of which too much is bad, or a worker that was
            killed. Finished shards stay, and so do the others up to their last checkpoint.
    """
    quality = _Quality(tasks)
    num_processes = min(num_workers, len(tasks))
    if num_processes <= 1:
        for source, unit, folder, plan in tasks:
            record = write_shard(source, tokenizer, unit, folder, plan, partial(on_bytes, source.name))
            quality.add(source, unit, record)
        return
    context = multiprocessing.get_context("spawn")
    progress, stop = context.Queue(), context.Event()
    threads = max(num_workers // num_processes, 1)
    with ProcessPoolExecutor(num_processes, context, _start_worker, (tokenizer, threads, progress, stop)) as pool:
        # Largest first, so that no process is left alone with a large one at the end.
        ordered = sorted(tasks, key=lambda task: -task.unit.num_bytes)
        futures = {pool.submit(_run_task, task): task for task in ordered}
        try:
            _follow(futures, quality, progress, on_bytes)
        except BrokenProcessPool as error:
            raise DataError(
                "a tokenizing process was killed, perhaps for memory: start again with fewer `workers`; "
                "finished shards are kept"
            ) from error
        finally:
            stop.set()
            _shut_down(pool, progress, on_bytes)


class _Quality:
    """Counts bad records of each source as its units finish, so that a bad source fails early, not after hours."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._bytes: Counter[str] = Counter()
        for task in tasks:
            self._bytes[task.source.name] += task.unit.num_bytes
        self._read: Counter[str] = Counter()
        self._documents: Counter[str] = Counter()
        self._skipped: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, source: Source, unit: Unit, record: Mapping[str, Any]) -> None:
        name = source.name
        self._read[name] += unit.num_bytes
        self._documents[name] += record["documents"]
        self._skipped[name].update(record["skipped"])
        if self._read[name]:
            share = self._read[name] / self._bytes[name]
            check_bad(source, self._documents[name], self._skipped[name], share)


def _follow(
    futures: Mapping[Future[dict[str, Any]], Task], quality: _Quality, progress: Any, on_bytes: OnBytes
) -> None:
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
        for name, count in _drain(progress):
            on_bytes(name, count)
        for future in done:
            task = futures[future]
            quality.add(task.source, task.unit, future.result())


def _shut_down(pool: ProcessPoolExecutor, progress: Any, on_bytes: OnBytes) -> None:
    """Wait for the workers' end, and take what they still say: a process ends only when its queue is empty."""
    ending = threading.Thread(target=pool.shutdown, kwargs={"wait": True, "cancel_futures": True})
    ending.start()
    while ending.is_alive():
        ending.join(_POLL_SECONDS)
        for name, count in _drain(progress):
            on_bytes(name, count)


def _drain(progress: Any) -> Iterator[tuple[str, int]]:
    while True:
        try:
            yield progress.get_nowait()
        except queue.Empty:
            return


def _start_worker(tokenizer: DocumentTokenizer, threads: int, progress: Any, stop: Any) -> None:
    global _tokenizer, _progress, _stop
    # Read once by the tokenizers library, in this process alone: threads beside processes.
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    _tokenizer, _progress, _stop = tokenizer, progress, stop
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A pool's workers outlive a parent that is killed, and would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _StoppedError(Exception):
    """Another unit failed: a unit may have hours to go, and the user waits for the reason."""


def _run_task(task: Task) -> dict[str, Any]:
    source, unit, folder, plan = task

    def on_bytes(count: int) -> None:
        if _stop.is_set():
            raise _StoppedError
        _progress.put((source.name, count))

    return write_shard(source, _tokenizer, unit, folder, plan, on_bytes)
