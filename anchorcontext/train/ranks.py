"""Ranks: who computes which windows, and with whom it shares them.

World = data-parallel x context-parallel. Consecutive ranks share a window: of 8 ranks at context
size 4, ranks 0-3 hold one window's rows and ranks 4-7 another's.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from anchorcontext.errors import ConfigError, RunError
from anchorcontext.machine import launched_with, usable_cores, uses_gpu

T = TypeVar("T")

_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What a launcher tells each rank."""

_TIMEOUT = timedelta(hours=1)
"""Of a collective. Long, because rank 0 exports a model and has it read back while the others wait."""


@dataclass(frozen=True)
class Ranks:
    """This process among all of them."""

    rank: int
    world_size: int
    local_rank: int
    device: torch.device
    context_size: int
    context_group: dist.ProcessGroup | None
    """The ranks that share this rank's windows; None where it shares them with nobody."""
    threads: int

    @property
    def is_main(self) -> bool:
        """Whether this rank writes files and talks to people."""
        return self.rank == 0

    @property
    def data_size(self) -> int:
        """Groups of ranks that hold different windows."""
        return self.world_size // self.context_size

    @property
    def data_rank(self) -> int:
        return self.rank // self.context_size

    @property
    def context_rank(self) -> int:
        return self.rank % self.context_size

    def sum(self, *values: float) -> list[float]:
        """Each value summed over all ranks, in float64."""
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def max(self, value: float) -> float:
        """The largest value of all ranks."""
        largest = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return largest.item()

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in rank order, on every rank."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def on_main(self, function: Callable[[], T]) -> T:
        """Call a function on rank 0 while the others wait; its result, or its error, on every rank."""
        outcome: list[Any] = [None, None]
        if self.is_main:
            try:
                outcome[0] = function()
            except Exception as error:
                outcome[1] = _portable(error)
        dist.broadcast_object_list(outcome, src=0, device=self.device)
        if outcome[1] is not None:
            raise outcome[1]
        return outcome[0]

    def barrier(self) -> None:
        dist.barrier()

    def check_same(self, what: str, value: Any) -> None:
        """Refuse to go on where ranks hold different values.

        Raises:
            RunError: on every rank, naming the ranks that differ from rank 0.
        """
        values = self.gather(value)
        different = [rank for rank, other in enumerate(values) if other != values[0]]
        if different:
            raise RunError(f"{what} differs between ranks: rank 0 has {values[0]}, not so ranks {different}")


@contextmanager
def join_ranks(context_size: int) -> Iterator[Ranks]:
    """Join the job's process group and leave it on every way out; without a launcher, a world of one.

    gloo on CPU, NCCL on CUDA. Threads are OMP_NUM_THREADS, else the node's cores divided among its
    ranks. torchrun sets OMP_NUM_THREADS=1 for more than one rank where it is unset, which
    cannot be told from a user's 1: `scripts/` therefore set it before torchrun does.

    Raises:
        ConfigError: an environment that sets only some of the variables that a launcher sets.
    """
    local_rank, local_size = _from_launcher()
    device = torch.device("cuda", local_rank) if uses_gpu() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    threads = launched_with("OMP_NUM_THREADS", max(1, usable_cores() // local_size), least=1)
    torch.set_num_threads(threads)
    with nullcontext() if dist.is_initialized() else process_group(device, **_rendezvous()):
        rank, world_size = dist.get_rank(), dist.get_world_size()
        yield Ranks(
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            device=device,
            context_size=context_size,
            context_group=_context_group(rank, world_size, context_size),
            threads=threads,
        )


@contextmanager
def process_group(device: torch.device, **rendezvous: Any) -> Iterator[None]:
    """The default process group, destroyed on every way out, after an error too.

    Threads of a group that is alive when its process exits use what is torn down under them: the
    process may abort (SIGABRT) instead of exiting with its own code.

    Args:
        device: this rank's; gloo on CPU, NCCL on CUDA.
        rendezvous: how the ranks find each other, as `init_process_group` takes it.
    """
    backend, device_id = ("nccl", device) if device.type == "cuda" else ("gloo", None)
    dist.init_process_group(backend, timeout=_TIMEOUT, device_id=device_id, **rendezvous)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _portable(error: Exception) -> Exception:
    """The error, where it survives the way to another process; else one with its words."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _from_launcher() -> tuple[int, int]:
    """Local rank and ranks on this node; DeepSpeed reads the first from the environment too."""
    os.environ.setdefault("LOCAL_RANK", "0")
    # torchrun says LOCAL_WORLD_SIZE, the deepspeed launcher LOCAL_SIZE
    local_size = launched_with("LOCAL_WORLD_SIZE", launched_with("LOCAL_SIZE", 1, least=1), least=1)
    return launched_with("LOCAL_RANK", 0), local_size


def _rendezvous() -> dict[str, Any]:
    """How this rank finds the others: as its launcher says, or in a world of one."""
    absent = [name for name in _LAUNCHED if name not in os.environ]
    if not absent:
        return {}
    if "RANK" in os.environ or launched_with("WORLD_SIZE", 1) > 1:
        given = ", ".join(name for name in _LAUNCHED if name not in absent)
        fix = f"unset, though {given} is set: start ranks by torchrun or deepspeed; for one rank, unset all four"
        raise ConfigError.of("the environment", ", ".join(absent), fix)
    return {"store": dist.HashStore(), "rank": 0, "world_size": 1}


def _context_group(rank: int, world_size: int, context_size: int) -> dist.ProcessGroup | None:
    """This rank's context-parallel group; every rank takes part in making every group."""
    if context_size == 1:
        return None
    mine = None
    for first in range(0, world_size, context_size):
        group = dist.new_group(list(range(first, first + context_size)), timeout=_TIMEOUT)
        if first <= rank < first + context_size:
            mine = group
    return mine
