"""Rank 0 tells people and files how a run goes: a progress bar, metrics.jsonl, a tracker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import yaml
from rich.progress import Progress, TextColumn

from anchorcontext.config.app import resolved_yaml
from anchorcontext.console import progress_bar
from anchorcontext.train.metrics import Metrics, MetricsFile, WandbTracker
from anchorcontext.train.setup import Run


class Sink(Protocol):
    """A place that keeps metrics."""

    def write(self, metrics: Metrics) -> None: ...

    def close(self) -> None: ...


class Reporter:
    """Where a run's words go; on every rank but the first, nowhere.

    Without a terminal there is no bar, and each logged step is a line.
    """

    def __init__(self, sinks: list[Sink], progress: Progress | None, steps: int, done_steps: int) -> None:
        self._sinks = sinks
        self._progress = progress
        self._steps = steps
        if progress is not None:
            self._task = progress.add_task("train", total=steps, completed=done_steps, status="")

    def log(self, metrics: Metrics) -> None:
        """Keep the metrics of a step, and show the loss."""
        for sink in self._sinks:
            sink.write(metrics)
        if self._progress is None:
            return
        status = f"loss {metrics['loss']:.4f}  {metrics['tokens_per_second']:,.0f} tokens/s"
        self._progress.update(self._task, status=status)
        if not self._progress.console.is_terminal:
            self.say(f"step {metrics['step']}/{self._steps}  {status}  grad norm {metrics['grad_norm']:.3f}")

    def advance(self, step: int) -> None:
        """A step is done."""
        if self._progress is not None:
            self._progress.update(self._task, completed=step)

    def say(self, message: str) -> None:
        """A line above the bar."""
        if self._progress is not None:
            self._progress.console.print(message, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def open_reporter(run: Run) -> Iterator[Reporter]:
    """The reporter of a run that stands at `run.state`; files and trackers are closed at the end."""
    steps, done_steps = run.config.training.steps, run.state.step
    if not run.ranks.is_main:
        yield Reporter([], None, steps, done_steps)
        return
    sinks = _open_sinks(run)
    try:
        with progress_bar(TextColumn("{task.fields[status]}")) as progress:
            report = Reporter(sinks, progress, steps, done_steps)
            for warning in run.warnings:
                report.say(f"warning: {warning}")
            report.say(run.batches.describe(steps) + (f"; {done_steps:,} steps are done" if done_steps else ""))
            yield report
    finally:
        for sink in sinks:
            sink.close()


def _open_sinks(run: Run) -> list[Sink]:
    sinks: list[Sink] = [MetricsFile(run.folder.metrics, run.state.step)]
    if run.config.logger.name == "wandb":
        settings = yaml.safe_load(resolved_yaml(run.config))
        sinks.append(WandbTracker(run.config.logger, run.config.run.name, run.folder.path, settings))
    return sinks
