"""Token stores on many machines: steps for the executors of datatrove (local, Slurm, Ray).

A step is called with a rank and the number of ranks, and is plain Python: datatrove is not imported
here. All machines see the same folders.

    plan = ClusterPlan(sources, load_tokenizer(path), folder)
    tokenize = SlurmPipelineExecutor([plan.tokenize], tasks=plan.num_tasks(200), time="10:00:00", partition="cpu")
    SlurmPipelineExecutor([plan.finish], tasks=1, time="1:00:00", partition="cpu", depends=tokenize).run()
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from data_prep.disk import only_writer
from data_prep.errors import DataError
from data_prep.read import Source
from data_prep.tokenize.build import BuiltStore, StorePlan, finish_stores, plan_stores
from data_prep.tokenize.shards import Task, check_plan, finished_record, write_shard
from data_prep.tokenize.tokenizer import DocumentTokenizer


class ClusterPlan:
    """The work of `build_stores`, as two steps that other processes take.

    Made once, where the jobs are submitted: lists the files, checks everything that can be wrong
    and makes the folders ready. The bytes are those of `build_stores`, for any number of ranks; killed
    tasks are started again and resume where they were. If another run begins a store anew from
    something else, the steps of this plan refuse to continue.

    Args:
        folder: of the stores, one per source; every machine sees it under this path.
        overwrite: make a store anew if it was made from other files, tokenizer or options.

    Raises:
        DataError: as `build_stores`.

    Attributes:
        path_said: which library tokenizes, and why.
        tokenize, finish: the steps.
    """

    def __init__(
        self, sources: Sequence[Source], tokenizer: DocumentTokenizer, folder: Path, *, overwrite: bool = False
    ) -> None:
        if not sources:
            raise DataError("no sources: name at least one under data.sources")
        said: list[str] = []
        folder = folder.absolute()
        with ExitStack() as stack:
            for source in sources:
                stack.enter_context(only_writer(folder / source.name))
            self._plan = plan_stores(sources, tokenizer, folder, overwrite=overwrite, on_path=said.append)
        self.path_said = said[0] if said else "tokenizers (Hugging Face), because there is little to do"
        # Largest first, dealt out like cards: ranks have similar amounts of work.
        tasks = sorted(self._plan.tasks, key=lambda task: -task.unit.num_bytes)
        self.tokenize = TokenizeStep(tasks, tokenizer)
        self.finish = FinishStep(self._plan)

    def num_tasks(self, most: int) -> int:
        """How many ranks to start: no more than there are units."""
        return max(min(most, len(self._plan.tasks)), 1)


class TokenizeStep:
    """Each rank's share of the units."""

    def __init__(self, tasks: Sequence[Task], tokenizer: DocumentTokenizer) -> None:
        self._tasks = tasks
        self._tokenizer = tokenizer

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a rank is one core
        for source, unit, folder, plan in self._tasks[rank::world_size]:
            write_shard(source, self._tokenizer, unit, folder, plan, lambda num_bytes: None)


class FinishStep:
    """One rank makes the manifests, when all shards are there."""

    def __init__(self, plan: StorePlan) -> None:
        self._plan = plan

    def __call__(self, data: Any = None, rank: int = 0, world_size: int = 1) -> list[BuiltStore]:
        """Make the stores.

        Raises:
            DataError: shards that are not finished, a store that another run began anew or finished, or the
                errors of `build_stores`.
        """
        with ExitStack() as stack:
            for job in self._plan.jobs:
                stack.enter_context(only_writer(job.folder))
            for job, digest in zip(self._plan.jobs, self._plan.digests, strict=True):
                if not job.reused:
                    check_plan(job.folder, digest)
            missing = [task for task in self._plan.tasks if finished_record(task.folder, task.unit) is None]
            if missing:
                raise DataError(
                    f"{len(missing)} of {len(self._plan.tasks)} shards are not finished: run the tokenizing step "
                    "again, then this one"
                )
            return finish_stores(self._plan)
