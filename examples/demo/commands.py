"""Runs commands one after another: each shown as it is typed, with one progress display over all of them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_STEP = re.compile(r"step (\d+)/(\d+) ")
_LINES_OF_A_FAILURE = 30


@dataclass(frozen=True)
class Command:
    """One step.

    Attributes:
        title: what it does, in a few words.
        words: the command, as words; the first is looked up in the environment's PATH. A function
            is called when the command's turn has come, for words that earlier commands decide.
        share: of the time of all steps, in any unit; guides the estimate of the time left.
        show: print its output; a training run's is kept in its log alone.
        kill_at_step: kill the run, with all its processes and without warning, once it has reported
            this training step.
    """

    title: str
    words: Sequence[str] | Callable[[], Sequence[str]]
    share: float
    show: bool = True
    kill_at_step: int | None = None


class CommandError(RuntimeError):
    """A command failed; the message holds the end of its output."""


class Runner:
    """Runs commands in `folder`, keeps what each prints in `logs`, and shows how far all of them are."""

    def __init__(self, commands: Sequence[Command], folder: Path, logs: Path, environment: dict[str, str]) -> None:
        self.commands = commands
        self.folder = folder
        self.logs = logs
        self.environment = {**os.environ, **environment}
        self.console = Console(highlight=False, soft_wrap=True)
        self._total = sum(command.share for command in commands)
        self._started = time.monotonic()

    def run_all(self) -> float:
        """Run every command; the seconds it took.

        Raises:
            CommandError: at the first one that fails.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[times]}  {task.fields[said]}"),
        )
        with Progress(*columns, console=self.console, disable=not self.console.is_terminal) as progress:
            bar = progress.add_task("", total=self._total, times="", said="")
            done = 0.0
            for number, command in enumerate(self.commands, start=1):
                place = f"step {number} of {len(self.commands)}"
                self.console.print(f"\n[bold]{command.title}[/bold]  [dim]({place}, {self._times(done)})[/dim]")
                words = list(command.words() if callable(command.words) else command.words)
                self.console.print(f"$ {shlex.join(words)}", markup=False, style="cyan")
                quarters = 0
                for fraction, said in self._run(command, words, self.logs / f"{number:02d}-{words[0]}.log"):
                    reached = done + fraction * command.share
                    times = self._times(reached)
                    progress.update(bar, completed=reached, description=place, times=times, said=said)
                    if not self.console.is_terminal and int(4 * fraction) > quarters:
                        quarters = int(4 * fraction)
                        self.console.print(f"{said}  ({times})", markup=False)
                done += command.share
        return time.monotonic() - self._started

    def _run(self, command: Command, words: Sequence[str], log: Path) -> Iterator[tuple[float, str]]:
        """Run a command; yields how much of it is done, 0 to 1, and what it says of it."""
        last_lines: deque[str] = deque(maxlen=_LINES_OF_A_FAILURE)
        with log.open("w", encoding="utf-8") as file, self._start(words) as process:
            try:
                yield 0.0, ""
                for line in process.stdout or ():
                    file.write(line)
                    last_lines.append(line)
                    if command.show:
                        self.console.print(line.rstrip("\n"), markup=False)
                    if found := _STEP.match(line):
                        step, steps = int(found[1]), int(found[2])
                        yield step / (command.kill_at_step or steps), line.partition("  grad norm")[0].strip()
                        if command.kill_at_step is not None and step >= command.kill_at_step:
                            kill(process)
                            self.console.print(f"killed after step {step} of {steps}, without a warning (SIGKILL)")
                            return
            except BaseException:  # Ctrl-C among them: no process may be left behind
                kill(process)
                raise
        if process.returncode:
            raise CommandError(
                f"{''.join(last_lines)}\n`{shlex.join(words)}` ended with exit code {process.returncode}; "
                f"all it printed is in {log}"
            )

    def _start(self, words: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )

    def _times(self, done: float) -> str:
        """Time used, and the time left by what was done in it."""
        used = time.monotonic() - self._started
        left = f", about {_clock(used * (self._total - done) / done)} left" if done else ""
        return f"{_clock(used)}{left}"


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL a process and all below it: a launcher's workers have sessions of their own."""
    try:
        parent = psutil.Process(process.pid)
        family = [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=30)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
