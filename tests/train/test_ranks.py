"""Ranks and their groups."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch.distributed as dist

from anchorcontext.config.errors import ConfigError
from anchorcontext.train.ranks import join_ranks
from tests.train.fakes import alone
from tests.workers import run_on


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


ALONE = """
import torch.distributed as dist, os
from anchorcontext.train.ranks import join_ranks
with join_ranks(1) as ranks:
    print(ranks.rank, ranks.world_size, ranks.threads, ranks.sum(3.0), ranks.on_main(lambda: 7))
print(dist.is_initialized())
"""


@pytest.mark.parametrize(("variables", "threads"), [({"LOCAL_SIZE": "2"}, None), ({"OMP_NUM_THREADS": "3"}, 3)])
def test_alone_without_a_launcher(variables: dict[str, str], threads: int | None) -> None:
    """A world of one; the deepspeed launcher's LOCAL_SIZE divides the cores where nobody chose threads."""
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"} | variables
    done = subprocess.run([sys.executable, "-c", ALONE], env=environment, capture_output=True, text=True, check=True)
    expected = threads or max(1, len(os.sched_getaffinity(0)) // 2)
    assert done.stdout.splitlines() == [f"0 1 {expected} [3.0] 7", "False"]


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
