"""Persistent gloo workers: processes that have imported everything and hold a process group.

Importing torch, transformers and DeepSpeed takes seconds, so one process imports them and every
worker is forked from it. A test session starts each world once and sends it functions:
`run_on(2, function, *args)` calls `function(*args)` on both ranks and returns their results by rank.
`call_fresh` calls a function in a process of its own, without a group. Functions must be importable
(module level), arguments and results picklable.
"""

from __future__ import annotations

import atexit
import os
import socket
import time
import traceback
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.multiprocessing as mp

_TIMEOUT_SECONDS = 300
_PEER_SECONDS = 5
"""For peers of a rank that failed: time to fail on their own, and say so."""
_IMPORTS = ["deepspeed", "transformers.models.llama.modeling_llama", "anchorcontext.train.loop"]
"""What nearly every function on workers needs; none of it starts a thread, so that forking is safe."""
_pools: dict[int, _Pool] = {}


class WorkerError(AssertionError):
    """A function failed on a worker; holds the rank's traceback."""


def run_on(world_size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Call `function(*args)` on every rank of a persistent gloo world; results in rank order."""
    return _pool(world_size).run(function, args)


def kill_workers_once(path: Path, world_size: int, function: Callable[..., Any], *args: Any) -> None:
    """Call `function(*args)` on every rank, and kill all of them, without warning, once `path` exists."""
    pool = _pool(world_size)
    pool.send(function, args)
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} was never written"
        time.sleep(0.002)
    pool.close()


def call_fresh(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function(*args)` in a process of its own, where no process group is and no launcher's variable set."""
    context = _context()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, function, args), daemon=True)
    process.start()
    theirs.close()
    try:
        succeeded, result = ours.recv()
    except EOFError:
        succeeded, result = False, "its process ended"
    process.join()
    if not succeeded:
        raise WorkerError(result)
    return result


def _pool(world_size: int) -> _Pool:
    if world_size not in _pools:
        _pools[world_size] = _Pool(world_size)
    return _pools[world_size]


def _context() -> Any:
    """With the server running, which sees no GPU: what it imports chooses its accelerator once for all workers."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTS)
    with mock.patch.dict(os.environ, DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES=""):
        forkserver.ensure_running()
    return context


class _Pool:
    def __init__(self, world_size: int) -> None:
        context = _context()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.world_size = world_size
        self.connections = []
        self.processes = []
        for rank in range(world_size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_worker, args=(rank, world_size, port, theirs), daemon=True)
            process.start()
            self.connections.append(ours)
            self.processes.append(process)

    def send(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        for connection in self.connections:
            connection.send((function, args))

    def run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
        self.send(function, args)
        answers = self._answers()
        failures = [f"rank {rank}:\n{result}" for rank, (ok, result) in sorted(answers.items()) if not ok]
        if failures or len(answers) < self.world_size:
            self.close()  # peers may be stuck in a collective: the next call starts a fresh world
            silent = sorted(set(range(self.world_size)) - answers.keys())
            raise WorkerError("\n".join([*failures, *(f"rank {rank} did not answer" for rank in silent)]))
        return [answers[rank][1] for rank in range(self.world_size)]

    def _answers(self) -> dict[int, tuple[bool, Any]]:
        """Each rank's (succeeded, result); ranks left waiting for one that failed are not waited for long."""
        answers: dict[int, tuple[bool, Any]] = {}
        waiting = dict(zip(self.connections, range(self.world_size), strict=True))
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while waiting and (ready := wait(list(waiting), timeout=deadline - time.monotonic())):
            for connection in ready:
                rank = waiting.pop(connection)
                try:
                    answers[rank] = connection.recv()
                except EOFError:
                    answers[rank] = (False, "its process ended")
                if not answers[rank][0]:
                    deadline = min(deadline, time.monotonic() + _PEER_SECONDS)
        return answers

    def close(self) -> None:
        _pools.pop(self.world_size, None)
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()


def _worker(rank: int, world_size: int, port: int, connection: Any) -> None:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_WORLD_SIZE=str(world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        OMP_NUM_THREADS="1",
        DS_ACCELERATOR="cpu",
        CUDA_VISIBLE_DEVICES="",
    )
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    while True:
        try:
            function, args = connection.recv()
        except EOFError:
            return
        _answer(connection, function, args)


def _answer(connection: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        connection.send((True, function(*args)))
    except BaseException:
        connection.send((False, traceback.format_exc()))


@atexit.register
def _close_all() -> None:
    for pool in list(_pools.values()):
        pool.close()
