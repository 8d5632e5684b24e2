"""Loss by position: how well checkpoints predict tokens early and late in held-out windows.

A token's position is the row that predicts it, counted from the window's begin: what the rotary
positions of the arms `full`, `document` and `anchor` count too. Losses are summed and labels
counted for each window and bucket of rows; sums are added over ranks and windows and divided at the
end, so every token weighs the same. Written, each from the one before: `windows.jsonl` (a line a
model and window), `by_position.csv`, `loss_by_position.png`; and `evaluation.json`, what was evaluated.
They replace those of an earlier evaluation once all are there.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table
from transformers.utils.logging import disable_progress_bar

from anchorcontext.config.errors import ConfigError
from anchorcontext.config.schema import EvaluateConfig, RopeConfig
from anchorcontext.console import plain_table, progress_bar, table_console
from anchorcontext.data.windows import PackedWindows
from anchorcontext.evaluate.checkpoints import check_checkpoints, load_checkpoint
from anchorcontext.evaluate.losses import WindowLosses, shortage_note, window_losses, windows_to_evaluate
from anchorcontext.models.checks import check_kernel
from anchorcontext.plots import PositionLoss, draw_loss_by_position, read_positions, save, write_positions
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


def evaluate(config: EvaluateConfig) -> None:
    """Evaluate every checkpoint, write the results and print a table, on rank 0.

    Raises:
        ConfigError, DataError: data or checkpoints that do not fit, before any of them is loaded;
            a checkpoint whose loss is not a number.
    """
    disable_progress_bar()  # transformers' own: ours counts all that is to be done
    with join_ranks(config.context_parallel.size) as ranks:
        windows = PackedWindows(config.data.index, config.split)
        ranks.check_same("the hash of the pack index", windows.index_hash)
        edges = bucket_edges(config.buckets, windows.window_tokens)
        check_kernel(config.attention.kernel, ranks.device)
        check_checkpoints(config, windows)
        output = Path(config.output).expanduser()
        unfinished = output / UNFINISHED
        if ranks.is_main:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
        share = len(windows_to_evaluate(config, windows)[ranks.data_rank :: ranks.data_size])
        results = {}
        with progress_bar(shown=ranks.is_main) as progress:
            task = progress.add_task("evaluate", total=share * len(config.models))
            for name, path in config.models.items():
                progress.update(task, description=f"evaluate {name}")
                model = load_checkpoint(config, name, ranks)
                own = []
                for losses in window_losses(model, windows, config, ranks):
                    own.append(sum_by_bucket(losses, edges))
                    progress.advance(task)
                sums = merge(ranks.gather(own))
                check_finite(name, path, sums)
                if ranks.is_main:
                    append_windows(unfinished / "windows.jsonl", name, sums, edges)
                results[name] = by_position(sums, edges)
        if ranks.is_main:
            write(config, windows, unfinished, results)
            for written in unfinished.iterdir():
                written.replace(output / written.name)
            unfinished.rmdir()
            print_results(config, windows, output, results)


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
    """A JSON line a window: sums and counts by bucket, from which everything else can be computed."""
    lows = [0, *edges[:-1]]
    with path.open("a", encoding="utf-8") as lines:
        for each in sums:
            buckets = [
                {"low": low, "high": high, "nll": nll, "tokens": tokens}
                for low, high, nll, tokens in zip(lows, edges, each.nll, each.tokens, strict=True)
            ]
            lines.write(json.dumps({"model": model, "window": each.window, "buckets": buckets}) + "\n")


def write(config: EvaluateConfig, windows: PackedWindows, output: Path, results: dict[str, list[PositionLoss]]) -> None:
    """The CSV, the plot drawn from it, and what was evaluated."""
    evaluation = {
        "models": config.models,
        "index": config.data.index,
        "index_hash": windows.index_hash,
        "split": config.split,
        "windows": len(windows_to_evaluate(config, windows)),
        "windows_asked_for": config.windows or len(windows),
        "note": shortage_note(config.windows, len(windows)),
        "window_tokens": windows.window_tokens,
        "arm": config.attention.arm,
        "precision": config.precision,
        "rope_compute": RopeConfig().compute,
    }
    (output / "evaluation.json").write_text(json.dumps(evaluation, indent=2) + "\n")
    write_positions(output / "by_position.csv", results)
    drawn = draw_loss_by_position(read_positions(output / "by_position.csv"), _title(config, windows))
    save(drawn, output / "loss_by_position.png")


def print_results(
    config: EvaluateConfig, windows: PackedWindows, output: Path, results: dict[str, list[PositionLoss]]
) -> None:
    """The table on the console, and where the files are."""
    console = table_console()
    console.print(position_table(results, _title(config, windows)))
    if (note := shortage_note(config.windows, len(windows))) is not None:
        console.print(note, soft_wrap=True)
    console.print(f"written: {output}", soft_wrap=True)


def _title(config: EvaluateConfig, windows: PackedWindows) -> str:
    count = len(windows_to_evaluate(config, windows))
    return f"Loss by position, {count:,} {config.split} windows of {windows.window_tokens:,} rows"


def position_table(results: dict[str, list[PositionLoss]], title: str) -> Table:
    """Loss of each model, and its standard error, a line a bucket."""
    table = plain_table(title, ("rows", "tokens", *results))
    table.caption = "nats a token, +- standard error over windows"
    buckets = sorted({(each.low, each.high, each.tokens) for of_model in results.values() for each in of_model})
    for low, high, tokens in buckets:
        cells = []
        for of_model in results.values():
            found = next(each for each in of_model if each.low == low)
            error = "" if found.standard_error is None else f" +- {found.standard_error:.3f}"
            cells.append(f"{found.loss:.4f}{error}")
        table.add_row(f"{low:,}-{high - 1:,}", f"{tokens:,}", *cells)
    return table
