"""Ranks and their groups."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

import pytest
import torch.distributed as dist

from anchorcontext.errors import ConfigError
from anchorcontext.train.ranks import join_ranks
from tests.train.fakes import alone
from tests.workers import call_fresh, run_on


def place(context_size: int) -> tuple[Any, ...]:
    with join_ranks(context_size) as ranks:
        group = ranks.context_group
        members = None if group is None else dist.get_process_group_ranks(group)
        return ranks.rank, ranks.data_rank, ranks.data_size, ranks.context_rank, members


def test_consecutive_ranks_share_a_window() -> None:
    assert run_on(4, place, 2) == [
        (0, 0, 2, 0, [0, 1]),
        (1, 0, 2, 1, [0, 1]),
        (2, 1, 2, 0, [2, 3]),
        (3, 1, 2, 1, [2, 3]),
    ]
    assert run_on(2, place, 1) == [(0, 0, 2, 0, None), (1, 1, 2, 0, None)]


def reductions() -> tuple[Any, ...]:
    with join_ranks(1) as ranks:
        return ranks.sum(ranks.rank + 0.5, 1), ranks.max(ranks.rank * 2.5), ranks.gather(ranks.rank)


def test_reductions() -> None:
    assert run_on(2, reductions) == [([2.0, 2.0], 2.5, [0, 1])] * 2


class StubbornError(ValueError):
    """Cannot be made from its message."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def fails(kind: str) -> str:
    def function() -> None:
        raise ConfigError.of("a.b", 1, "set it") if kind == "config" else StubbornError("x", "y")

    with join_ranks(1) as ranks:
        try:
            ranks.on_main(function)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""


def test_rank_0s_error_is_every_ranks() -> None:
    first, second = run_on(2, fails, "config")
    assert first == second
    assert first.startswith("ConfigError: 1 problem")
    assert run_on(2, fails, "stubborn") == ["RuntimeError: StubbornError: xy"] * 2


def differs() -> str:
    with join_ranks(1) as ranks:
        ranks.check_same("the colour", "red")
        try:
            ranks.check_same("the digest", ranks.rank)
        except RuntimeError as error:
            return str(error)
    return ""


def test_differences_are_named() -> None:
    assert run_on(2, differs) == ["the digest differs between ranks: rank 0 has 0, not so ranks [1]"] * 2


def joined_alone(variables: dict[str, str]) -> tuple[Any, ...]:
    del os.environ["OMP_NUM_THREADS"]
    os.environ.update(variables)
    with join_ranks(1) as ranks:
        seen = (ranks.rank, ranks.world_size, ranks.threads, ranks.sum(3.0), ranks.on_main(lambda: 7))
    return (*seen, dist.is_initialized())


@pytest.mark.parametrize(("variables", "threads"), [({"LOCAL_SIZE": "2"}, None), ({"OMP_NUM_THREADS": "3"}, 3)])
def test_alone_without_a_launcher(variables: dict[str, str], threads: int | None) -> None:
    """A world of one; the deepspeed launcher's LOCAL_SIZE divides the cores where nobody chose threads."""
    expected = threads or max(1, len(os.sched_getaffinity(0)) // 2)
    assert call_fresh(joined_alone, variables) == (0, 1, expected, [3.0], 7, False)


ONE_RANK_RAISES = """
import atexit
import torch.distributed as dist
from anchorcontext.train.ranks import join_ranks
atexit.register(lambda: print("a group is alive" if dist.is_initialized() else "no group is alive"))
with join_ranks(2) as ranks:
    ranks.barrier()
    if ranks.rank == 1:
        raise ValueError("as told")
    ranks.barrier()
"""


def test_a_rank_that_raises_destroys_its_group_and_exits_with_1() -> None:
    """And so does its peer, whom the loss of it fails; neither is killed by a signal (SIGABRT: -6)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    launched = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ONE_RANK_RAISES],
            env={**os.environ, **launched, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [1, 1], outputs
    assert [output for output, _ in outputs] == ["no group is alive\n"] * 2
    assert "ValueError: as told" in outputs[1][1]


@pytest.mark.parametrize("given", [{"RANK": "0"}, {"WORLD_SIZE": "2"}, {"RANK": "0", "WORLD_SIZE": "2"}])
def test_half_a_launcher_is_refused(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    """A rank must not take itself for the only one, nor wait for others that nobody starts."""
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")  # so that it is put back afterwards
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"MASTER_ADDR, MASTER_PORT: unset, though"), join_ranks(1):
        pass


def test_properties_of_a_rank() -> None:
    ranks = alone(rank=5, world_size=8, context_size=2)
    assert (ranks.is_main, ranks.data_rank, ranks.context_rank, ranks.data_size) == (False, 2, 1, 4)
