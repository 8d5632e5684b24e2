"""The test workers themselves: results in rank order, and a failure that does not hang its peers."""

import math
import os
from collections.abc import Callable

import pytest
import torch.distributed as dist

from tests.workers import WorkerError, call_fresh, run_on


def rank_times(factor: int) -> int:
    return dist.get_rank() * factor


def fails_on_rank_1() -> None:
    if dist.get_rank() == 1:
        raise ValueError("as told")
    dist.barrier()


def dies_on_rank_1() -> None:
    if dist.get_rank() == 1:
        os._exit(3)
    dist.barrier()


def test_results_come_by_rank() -> None:
    assert run_on(2, rank_times, 10) == [0, 10]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (fails_on_rank_1, "as told"),
        pytest.param(dies_on_rank_1, "its process ended", marks=pytest.mark.slow),
    ],
)
def test_a_failure_names_its_rank_and_leaves_a_fresh_world(function: Callable[[], None], words: str) -> None:
    with pytest.raises(WorkerError, match=f"rank 1:(.|\n)*{words}"):
        run_on(2, function)
    assert run_on(2, rank_times, 1) == [0, 1]


def test_a_fresh_process_has_no_group() -> None:
    assert call_fresh(dist.is_initialized) is False
    with pytest.raises(WorkerError, match="ValueError"):
        call_fresh(math.sqrt, -1)
    with pytest.raises(WorkerError, match="its process ended"):
        call_fresh(os._exit, 3)
