"""Loss by position: how well checkpoints predict tokens early and late in held-out windows.

A token's position is the row that predicts it, counted from the window's begin: what the rotary
positions of the arms `full`, `document` and `anchor` count too. Losses are summed and labels
counted for each window and bucket of rows; sums are added over ranks and windows and divided at the
end, so every token weighs the same. Written, each from the one before: `windows.jsonl` (one line
per model and window), `by_position.csv`, `loss_by_position.png`; and `evaluation.json`, what was evaluated.
They replace those of an earlier evaluation once all are there.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers.utils.logging import disable_progress_bar

from anchorcontext import progress
from anchorcontext.config.schema import RopeConfig
from anchorcontext.data.windows import PackedWindows
from anchorcontext.errors import ConfigError
from anchorcontext.evaluate.checkpoints import check_checkpoints, load_checkpoint
from anchorcontext.evaluate.losses import LossOptions, WindowLosses, shortage_note, window_losses
from anchorcontext.models.checks import check_kernel
from anchorcontext.plots import PositionLoss, draw_loss_by_position, read_positions, save, write_positions
from anchorcontext.progress import OnProgress
from anchorcontext.train.ranks import join_ranks

FIRST_EDGE = 64
"""The first bucket, where the config names none, is rows 0 .. 63; each later one doubles the range."""


UNFINISHED = ".unfinished"
"""Folder in the output that holds files until all are there."""


@dataclass(frozen=True)
class WindowSums:
    """Losses of a window, or of one rank's part of it, summed by bucket.

    Attributes:
        window: its number in the index.
        nll: sums of losses, in nats.
        tokens: labels they are sums over.
    """

    window: int
    nll: list[float]
    tokens: list[int]


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found.

    Attributes:
        losses: by the name of the model.
        title: what was evaluated.
        folder: where the files are.
        note: says that the split has fewer windows than were asked for; None where it has enough.
    """

    losses: dict[str, list[PositionLoss]]
    title: str
    folder: Path
    note: str | None


def evaluate_positions(
    models: Mapping[str, str],
    index: str,
    output: str | Path,
    *,
    split: str = "held_out",
    windows: int = 16,
    buckets: Sequence[int] = (),
    precision: str = "float32",
    options: LossOptions | None = None,
    on_progress: OnProgress = progress.ignore,
) -> Evaluated | None:
    """Evaluate every checkpoint and write the results. Called on every rank; None on all but rank 0.

    Args:
        models: checkpoints in Hugging Face format, by the names that results give them.
        index: folder of the pack index.
        windows: evaluated, the first of the split; 0 takes all.
        buckets: upper edges of the position buckets, in rows; empty: powers of two up to the window.
        precision: `float32` or `bf16`.
        on_progress: told, on rank 0, the windows that it has evaluated.

    Raises:
        ConfigError, DataError: data or checkpoints that do not fit, before any of them is loaded;
            a checkpoint whose loss is not a number.
    """
    options = options or LossOptions()
    disable_progress_bar()  # transformers' own: the caller counts everything there is to do
    with join_ranks(options.context_parallel.size) as ranks:
        packed = PackedWindows(index, split)
        ranks.check_same("the hash of the pack index", packed.index_hash)
        edges = bucket_edges(buckets, packed.window_tokens)
        check_kernel(options.kernel, ranks.device)
        check_checkpoints(models, index, packed, options, precision, ranks.device)
        count = min(windows or len(packed), len(packed))
        folder = Path(output).expanduser()
        unfinished = folder / UNFINISHED
        if ranks.is_main:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
        results = {}
        counter = _Counter(on_progress, len(range(count)[ranks.data_rank :: ranks.data_size]) * len(models))
        for name, path in models.items():
            model = load_checkpoint(name, path, precision, options.kernel, ranks)
            own = []
            for losses in window_losses(model, packed, count, options, ranks):
                own.append(sum_by_bucket(losses, edges))
                if ranks.is_main:
                    counter.advance(f"evaluate {name}")
            sums = merge(ranks.gather(own))
            check_finite(name, path, sums)
            if ranks.is_main:
                append_windows(unfinished / "windows.jsonl", name, sums, edges)
            results[name] = by_position(sums, edges)
        if not ranks.is_main:
            return None
        evaluation = {
            "models": dict(models),
            "index": index,
            "index_hash": packed.index_hash,
            "split": split,
            "windows": count,
            "windows_asked_for": windows or len(packed),
            "note": shortage_note(windows, len(packed)),
            "window_tokens": packed.window_tokens,
            "arm": options.arm,
            "precision": precision,
            "rope_compute": RopeConfig().compute,
        }
        return _publish(folder, unfinished, evaluation, results)


def _publish(
    folder: Path, unfinished: Path, evaluation: Mapping[str, Any], results: dict[str, list[PositionLoss]]
) -> Evaluated:
    """Write what remains into `unfinished`, then move all of its files into `folder`."""
    counted = f"{evaluation['windows']:,} {evaluation['split']} windows of {evaluation['window_tokens']:,} rows"
    title = f"Loss by position, {counted}"
    write(unfinished, evaluation, results, title)
    for written in unfinished.iterdir():
        written.replace(folder / written.name)
    unfinished.rmdir()
    return Evaluated(results, title, folder, evaluation["note"])


class _Counter:
    """Counts what is done of a known total."""

    def __init__(self, on_progress: OnProgress, total: int) -> None:
        self._on_progress, self._total, self._done = on_progress, total, 0

    def advance(self, what: str) -> None:
        self._done += 1
        self._on_progress(what, self._done, self._total)


def bucket_edges(buckets: Sequence[int], window_tokens: int) -> list[int]:
    """Upper edges of the buckets, the last one the window's end.

    Raises:
        ConfigError: an edge beyond the window.
    """
    if buckets and buckets[-1] > window_tokens:
        raise ConfigError.of("buckets", buckets, f"the windows have {window_tokens:,} rows: name no edge beyond")
    edges = list(buckets)
    if not edges:
        edges = [FIRST_EDGE << doubling for doubling in range(window_tokens.bit_length())]
    return [edge for edge in edges if edge < window_tokens] + [window_tokens]


def sum_by_bucket(losses: WindowLosses, edges: Sequence[int]) -> WindowSums:
    """Sums of losses, in float64, and numbers of labels in each bucket of rows."""
    places = np.searchsorted(edges, losses.rows.numpy(), side="right")
    nll = np.bincount(places, weights=losses.losses.double().numpy(), minlength=len(edges))
    tokens = np.bincount(places, minlength=len(edges))
    return WindowSums(losses.window, nll.tolist(), tokens.tolist())


def merge(of_ranks: Iterable[Iterable[WindowSums]]) -> list[WindowSums]:
    """The sums of whole windows, in order of their numbers, from those of every rank's rows."""
    merged: dict[int, WindowSums] = {}
    for part in (sums for of_rank in of_ranks for sums in of_rank):
        whole = merged.get(part.window)
        if whole is not None:
            nll = [a + b for a, b in zip(whole.nll, part.nll, strict=True)]
            part = WindowSums(part.window, nll, [a + b for a, b in zip(whole.tokens, part.tokens, strict=True)])
        merged[part.window] = part
    return [merged[number] for number in sorted(merged)]


def by_position(sums: Sequence[WindowSums], edges: Sequence[int]) -> list[PositionLoss]:
    """Token-weighted mean loss of each bucket and its standard error over windows; empty buckets are left out.

    The error is that of a ratio of two sums: windows differ in their losses and in their labels.
    """
    nll, tokens = np.array([each.nll for each in sums]), np.array([each.tokens for each in sums])  # [windows, buckets]
    results = []
    for place, (low, high) in enumerate(zip([0, *edges[:-1]], edges, strict=True)):
        total = int(tokens[:, place].sum())
        if total == 0:
            continue
        loss = float(nll[:, place].sum() / total)
        error = None
        if len(sums) > 1:
            residuals = nll[:, place] - loss * tokens[:, place]
            error = float(np.sqrt(len(sums) / (len(sums) - 1) * (residuals**2).sum()) / total)
        results.append(PositionLoss(low, high, total, loss, error))
    return results


def check_finite(name: str, path: str, sums: Sequence[WindowSums]) -> None:
    """Raises:
    ConfigError: on every rank, naming the first window whose loss is not a number.
    """
    for each in sums:
        if not math.isfinite(sum(each.nll)):
            fix = f"its loss on window {each.window} is {sum(each.nll)}: the checkpoint, or its config.json, is broken"
            raise ConfigError.of(f"models.{name}", path, fix)


def append_windows(path: Path, model: str, sums: Sequence[WindowSums], edges: Sequence[int]) -> None:
    """One JSON line per window: sums and counts by bucket, from which everything else can be computed."""
    lows = [0, *edges[:-1]]
    with path.open("a", encoding="utf-8") as lines:
        for each in sums:
            buckets = [
                {"low": low, "high": high, "nll": nll, "tokens": tokens}
                for low, high, nll, tokens in zip(lows, edges, each.nll, each.tokens, strict=True)
            ]
            lines.write(json.dumps({"model": model, "window": each.window, "buckets": buckets}) + "\n")


def write(folder: Path, evaluation: Mapping[str, Any], results: Mapping[str, list[PositionLoss]], title: str) -> None:
    """What was evaluated, the CSV, and the plot drawn from it."""
    (folder / "evaluation.json").write_text(json.dumps(evaluation, indent=2) + "\n")
    write_positions(folder / "by_position.csv", dict(results))
    save(draw_loss_by_position(read_positions(folder / "by_position.csv"), title), folder / "loss_by_position.png")
