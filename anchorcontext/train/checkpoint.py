"""Checkpoints: everything a run needs to go on as if it had never stopped.

A checkpoint is a folder: DeepSpeed's files (model, optimizer, master weights), each rank's random
state, and `state.json`. It is written under a temporary name, synced, and committed by one rename;
then `latest` names it, and only then do older ones go.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anchorcontext.config.schema import TrainConfig
from anchorcontext.data.order import DataState
from anchorcontext.errors import ConfigError, Problem, RunError
from anchorcontext.machine import uses_gpu
from anchorcontext.train.ranks import Ranks
from anchorcontext.train.run_folder import TEMPORARY_PREFIX, fixed_settings, step_folders, step_name
from data_prep.disk import sync_folder, sync_tree, write_file, write_json
from data_prep.errors import DataError

FORMAT_VERSION = 3
_STATE = "state.json"
_DAMAGED_PREFIX = "damaged-"


class DamagedError(ConfigError):
    """A checkpoint folder that is not whole."""


@dataclass(frozen=True)
class TrainState:
    """Where a run stands after a step; all of it but weights, optimizer and random state."""

    step: int
    data: DataState
    tokens: int
    """Tokens trained on since the run began."""
    world_size: int
    settings: dict[str, Any]
    """By config key, what makes the run what it is (`run_folder.fixed_settings`)."""

    def after(self, step: int, tokens: int, data: DataState) -> TrainState:
        """The state once a step of that many tokens is taken."""
        return replace(self, step=step, tokens=self.tokens + tokens, data=data)

    def write(self, folder: Path) -> None:
        """Write `state.json` into a folder that is complete but for it."""
        files = {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.is_file()}
        write_json(folder / _STATE, {"format_version": FORMAT_VERSION, **asdict(self), "files": files})

    @classmethod
    def read(cls, folder: Path) -> TrainState:
        """The state of a checkpoint folder.

        Raises:
            DamagedError: no checkpoint, or one that lacks files.
            ConfigError: one of another format.
        """
        try:
            content = json.loads((folder / _STATE).read_text())
            found, files = content.pop("format_version", None), content.pop("files").items()
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            fix = f"is no complete checkpoint (no readable {_STATE}); give the path of a step-* folder in checkpoints/"
            raise DamagedError.of("run.resume", folder, fix) from None
        if found != FORMAT_VERSION:
            fix = f"has checkpoint format {found}, this version reads {FORMAT_VERSION}"
            raise ConfigError.of("run.resume", folder, fix)
        for name, size in files:
            if not (folder / name).is_file() or (folder / name).stat().st_size != size:
                fix = f"is damaged: {name} is missing or not {size:,} bytes long; go on from another checkpoint"
                raise DamagedError.of("run.resume", folder, fix)
        try:
            return cls(**{**content, "data": DataState.from_dict(content["data"])})
        except (DataError, LookupError, TypeError) as error:
            raise DamagedError.of("run.resume", folder, f"is damaged: {_STATE} holds other fields ({error})") from None


class Checkpoints:
    """The checkpoints of a run.

    Args:
        folder: where they are, `RUN/checkpoints`.
        keep: how many stay, the newest.
    """

    def __init__(self, folder: Path, ranks: Ranks, keep: int) -> None:
        self.folder = folder
        self.ranks = ranks
        self.keep = keep

    def choose(self, resume: str) -> tuple[Path | None, list[str]]:
        """The checkpoint to go on from, None to begin; and warnings. Collective.

        Damaged checkpoints of this run that are newer than its newest sound one are set aside: their
        names are needed again.

        Args:
            resume: `auto`, `never` or a checkpoint's path (the config's run.resume).

        Raises:
            ConfigError: no checkpoint there, none that is sound, or this run has gone on from the one named.
        """
        newest, warnings = self.ranks.on_main(self._newest_sound)
        if resume in ("auto", "never"):
            return newest, warnings
        chosen = Path(resume).expanduser()
        state = TrainState.read(chosen)
        if newest is None or TrainState.read(newest).step <= state.step:
            return chosen, warnings
        if chosen.resolve().parent == self.folder.resolve():
            fix = f"the run has gone on to {newest.name}: choose another run.name to go on from {chosen.name}"
            raise ConfigError.of("run.resume", resume, fix)
        return newest, warnings  # begun from another run's checkpoint, then stopped: the same command goes on

    def _newest_sound(self) -> tuple[Path | None, list[str]]:
        committed, damaged = step_folders(self.folder), []
        while committed:
            try:
                TrainState.read(committed[-1][1])
                break
            except DamagedError as error:
                damaged.append(error.problems[0])
                committed.pop()
        if damaged and not committed:
            fix = "is damaged, and no checkpoint before it is sound: delete the folder to begin the run anew"
            raise ConfigError([replace(problem, fix=fix) for problem in damaged])
        warnings = []
        for problem in damaged:
            path = Path(str(problem.value))
            aside = path.with_name(f"{_DAMAGED_PREFIX}{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
            found = problem.fix.partition(";")[0]
            warnings.append(
                f"{path} {found}. The run goes on from {committed[-1][1].name} and takes the steps after it again; "
                f"what is left of {path.name} is kept as {aside.name}"
            )
        return (committed[-1][1] if committed else None), warnings

    def save(self, engine: Any, state: TrainState) -> Path:
        """Write a checkpoint and commit it. Collective.

        Raises:
            RunError: it cannot be written, as on a full disk; those before it stay.
        """
        final = self.folder / step_name(state.step)
        try:
            self._write(engine, final.with_name(TEMPORARY_PREFIX + final.name), final, state)
        except (OSError, RuntimeError) as error:  # torch's writer raises the latter for a full disk
            raise RunError(
                f"the checkpoint {final} cannot be written ({_in_a_line(error)}): is the disk full? With room, "
                "the same command goes on from the checkpoint before it"
            ) from error
        return final

    def _write(self, engine: Any, temporary: Path, final: Path, state: TrainState) -> None:
        engine.save_checkpoint(str(self.folder), tag=temporary.name, save_latest=False)
        torch.save(random_state(), temporary / _random_file(self.ranks.rank))
        self.ranks.barrier()
        if self.ranks.local_rank == 0:
            sync_tree(temporary)  # each node makes what its own ranks wrote last
        self.ranks.barrier()
        self.ranks.on_main(lambda: self._commit(temporary, final, state))

    def _commit(self, temporary: Path, final: Path, state: TrainState) -> None:
        state.write(temporary)
        temporary.rename(final)
        sync_folder(self.folder)
        write_file(self.folder / "latest", f"{final.name}\n".encode())
        for _, old in step_folders(self.folder)[: -self.keep]:
            shutil.rmtree(old)

    def load(self, engine: Any, folder: Path) -> None:
        """Put weights, optimizer and random state back. Collective.

        Raises:
            RunError: it cannot be read, or DeepSpeed found nothing to load, which it does not say itself.
        """
        way_out = "delete that folder, and the same command goes on from the checkpoint before it"
        try:
            loaded, _ = engine.load_checkpoint(str(folder.parent), tag=folder.name)
            random_file = torch.load(folder / _random_file(self.ranks.rank), weights_only=False)
        except Exception as error:  # whatever a damaged file makes of its readers
            raise RunError(f"{folder} cannot be loaded ({_in_a_line(error)}): {way_out}") from error
        if loaded is None:
            raise RunError(f"DeepSpeed loaded nothing from {folder}: {way_out}")
        set_random_state(random_file)


def check_layout(state: TrainState, config: TrainConfig, ranks: Ranks) -> None:
    """Refuse a checkpoint of another run than this config's, or divided in another way than this job's files.

    Raises:
        ConfigError: every difference.
    """
    now = {"ranks of the job": ranks.world_size, **fixed_settings(config)}
    was = {"ranks of the job": state.world_size, **state.settings}
    problems = [
        Problem(key, now[key], f"the checkpoint of step {state.step} was saved with {was[key]}: go on with the same")
        for key in now
        if now[key] != was[key]
    ]
    if problems:
        raise ConfigError(problems)


def seed_everything(seed: int, rank: int) -> None:
    """Start every random generator of this process, each rank's in another place."""
    random.seed(f"{seed}:{rank}")
    np.random.seed([seed, rank])
    torch.manual_seed(seed * 100_003 + rank)


def random_state() -> dict[str, Any]:
    """State of every random generator of this process."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if uses_gpu() else None,
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Put back what `random_state` returned."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"])


def _in_a_line(error: Exception) -> str:
    """The error's type and the first line of its words; torch adds a trace of its own code below."""
    words = str(error).strip().splitlines()
    return f"{type(error).__name__}: {words[0]}" if words else type(error).__name__


def _random_file(rank: int) -> str:
    return f"random-{rank:05d}.pt"
