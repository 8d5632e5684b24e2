"""Attention over one window shared by several ranks, compared with other packages: time, traffic, memory, error.

    python -m benchmarks.context_parallel
    python -m benchmarks.context_parallel --window-tokens 2048 --repeats 1 --output /tmp/benchmark
    python -m benchmarks.context_parallel --ranks 8 --window-tokens 131072 --query-heads 32 --key-heads 8 --head-dim 128

One run compares our exchanges and policies, the variable-length functions of ring-flash-attn (in the
extra `dev`) and DeepSpeed's Ulysses, forward and backward, on the same tensors and with the same
kernel. Methods that are not installed, or cannot handle the window, are skipped and listed. On a CPU
the ranks are processes with one thread each, over gloo. There may be more ranks than cores, so time
is the CPU time of the slowest rank, not wall-clock time. With GPUs, one per rank, it is GPU time.

Each repeat runs all methods one after another, so that other load on the machine affects all of them
equally. Other load can only add CPU seconds, so a rank's time is the minimum of its repeats. The
one-rank time is measured on all ranks at the same time; it is the median over ranks.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import socket
import statistics
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from matplotlib.figure import Figure

from anchorcontext.console import plain_table, table_console
from anchorcontext.data.length_mixes import MIXES, sample_window
from anchorcontext.plots.style import MUTED, color_of, new_figure, save, styled
from anchorcontext.train.ranks import process_group
from benchmarks.environment import machine
from benchmarks.measure import error, exact, inputs, measure
from benchmarks.methods import ONE_RANK, PEERS, Shape, methods_of

PACKAGES = ("torch", "deepspeed", "ring-flash-attn", "flash-attn")
DTYPES = {"bf16": torch.bfloat16, "float32": torch.float32}
COLUMNS = ("method", "seconds", "share", "thread_share", "spread", "mib_sent", "peak_mib", "error", "note")
"""Columns of the CSV and the table. `seconds`: of the slowest rank. `share`: one-rank seconds / ranks / `seconds`.
`thread_share`: the same for the computing threads alone. `spread`: how far the median of a rank's repeats lies above
their minimum; the largest of any rank. `mib_sent`: by all ranks. `peak_mib`: above the inputs; the largest of any rank.
`error`: in the small window, against float64, relative to the largest value; the largest of any rank."""


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--ranks", type=int, default=4)
    found.add_argument("--window-tokens", type=int, default=32_768)
    found.add_argument("--mix", choices=sorted(MIXES), default="web", help="distribution of document lengths")
    found.add_argument("--seed", type=int, default=0, help="which window of the mix")
    found.add_argument("--query-heads", type=int, default=8)
    found.add_argument("--key-heads", type=int, default=2)
    found.add_argument("--head-dim", type=int, default=64)
    found.add_argument("--dtype", choices=sorted(DTYPES), default="bf16")
    found.add_argument("--repeats", type=int, default=5)
    found.add_argument(
        "--error-tokens", type=int, default=2048, help="length of the window in which the error is measured"
    )
    found.add_argument(
        "--flops-per-second", type=float, help="speed of the kernel that plans assume (default: 500e12, CPU 30e9)"
    )
    found.add_argument(
        "--bytes-per-second", type=float, help="bandwidth of a rank that plans assume (default: 300e9, CPU 1e9)"
    )
    found.add_argument(
        "--output", type=Path, help="folder for the results (default: benchmarks/results/context_parallel_DEVICE)"
    )
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and torch.cuda.device_count() < options.ranks:
        raise SystemExit(f"--ranks={options.ranks}: each rank needs a GPU, and there are {torch.cuda.device_count()}")
    default_speeds = (500e12, 300e9) if device == "cuda" else (30e9, 1e9)
    options.flops_per_second = options.flops_per_second or default_speeds[0]
    options.bytes_per_second = options.bytes_per_second or default_speeds[1]
    folder = options.output or Path(__file__).parent / "results" / f"context_parallel_{device}"
    os.environ["OMP_NUM_THREADS"] = "1"
    load_before = os.getloadavg()
    with tempfile.TemporaryDirectory() as scratch, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        answer = Path(scratch) / "measured.json"
        try:
            mp.spawn(_rank, (options, device, port, str(answer)), nprocs=options.ranks)
        except mp.ProcessExitedException as error:
            if not answer.is_file():
                raise
            print(f"all measurements are complete, but on exit: {error}")  # seen once: SIGABRT in a library's thread
        by_rank, names, refused = json.loads(answer.read_text(encoding="utf-8"))
    lines = summarize(by_rank, names, options.ranks)
    case = {key: value for key, value in vars(options).items() if key != "output"}
    case["documents"] = sample_window(options.mix, options.window_tokens, options.seed)
    environment = {**machine(PACKAGES), "load_average_before": load_before, "load_average_after": os.getloadavg()}
    write(folder, lines, refused, case, environment)
    show(lines, refused)
    print(f"written to {folder}")


def _rank(rank: int, options: argparse.Namespace, device_type: str, port: int, answer: str) -> None:
    """Measure on one rank; rank 0 writes the results of all ranks."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    device = torch.device(device_type, rank) if device_type == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")  # of the peers' calls
    with process_group(device, rank=rank, world_size=options.ranks):
        measured = measurements(options, device)
        everyones: list[Any] = [None] * options.ranks
        dist.all_gather_object(everyones, measured)
        if rank == 0:
            names, refused = measured["names"], measured["refused"]
            Path(answer).write_text(json.dumps([[each["results"] for each in everyones], names, refused]), "utf-8")
        dist.barrier()  # no rank leaves before the answer is there


def measurements(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """This rank's figures for every method; every rank runs the same methods in the same order."""
    shape, dtype = Shape(options.query_heads, options.key_heads, options.head_dim), DTYPES[options.dtype]
    small = sample_window(options.mix, options.error_tokens, options.seed)
    window = inputs(options.error_tokens, shape, dtype, device)
    reference = exact(small, window)
    methods, _ = methods_of(small, shape, device, options.flops_per_second, options.bytes_per_second)
    errors: dict[str, float] = {}
    for method in methods:  # this also warms everything up
        errors.update(dict.fromkeys(method.names, error(method, window, reference)))
    lengths = sample_window(options.mix, options.window_tokens, options.seed)
    methods, refused = methods_of(lengths, shape, device, options.flops_per_second, options.bytes_per_second)
    window = inputs(options.window_tokens, shape, dtype, device)
    passes = [[measure(method, window) for method in methods] for _ in range(options.repeats)]
    results = [
        {
            **{key: min(each[number][key] for each in passes) for key in ("seconds", "thread_seconds")},
            **{key: max(each[number][key] for each in passes) for key in ("mib_sent", "peak_mib")},
            "median_seconds": statistics.median(each[number]["seconds"] for each in passes),
            "error": errors[method.names[0]],
        }
        for number, method in enumerate(methods)
    ]
    return {
        "names": [[" = ".join(method.names), method.note] for method in methods],
        "refused": refused,
        "results": results,
    }


def summarize(by_rank: list[list[dict[str, float]]], names: list[list[str]], ranks: int) -> list[dict[str, Any]]:
    """One line of `COLUMNS` per method, from each rank's figures for each method."""
    ones = [figures[0] for figures in by_rank]  # one rank, measured by every rank
    ideal, thread_ideal = (statistics.median(one[key] for one in ones) / ranks for key in ("seconds", "thread_seconds"))
    lines = []
    for (name, note), figures in zip(names, zip(*by_rank, strict=True), strict=True):
        one = name == ONE_RANK
        seconds, threads = (
            ranks * best if one else max(figure[key] for figure in figures)
            for key, best in (("seconds", ideal), ("thread_seconds", thread_ideal))
        )
        lines.append(
            {
                "method": name,
                "seconds": seconds,
                "share": None if one else ideal / seconds,
                "thread_share": None if one or not threads else thread_ideal / threads,
                "spread": max(figure["median_seconds"] / figure["seconds"] - 1 for figure in figures),
                "mib_sent": sum(figure["mib_sent"] for figure in figures),
                "peak_mib": max(figure["peak_mib"] for figure in figures),
                "error": max(figure["error"] for figure in figures),
                "note": note,
            }
        )
    return lines


def write(
    folder: Path,
    lines: list[dict[str, Any]],
    refused: dict[str, str],
    case: dict[str, Any],
    environment: dict[str, Any],
) -> None:
    """Write `results.csv`, `results.json` and `results.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "results.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    content = {"case": case, "machine": environment, "results": lines, "left_out": refused}
    (folder / "results.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    save(draw(lines), folder / "results.png")


def show(lines: list[dict[str, Any]], refused: dict[str, str]) -> None:
    """Print the table, fastest method first, and what was left out."""
    heads = ["method", "seconds", "share", "threads'", "spread", "MiB sent", "peak MiB", "error"]
    table = plain_table("forward and backward, slowest rank", heads, left=("method",))
    for line in sorted(lines, key=lambda line: line["seconds"]):
        shares = ["" if line[key] is None else f"{line[key]:.1%}" for key in ("share", "thread_share")]
        sizes = [f"{line['mib_sent']:.1f}", f"{line['peak_mib']:.0f}", f"{line['error']:.1e}"]
        table.add_row(line["method"], f"{line['seconds']:.3f}", *shares, f"{line['spread']:.0%}", *sizes)
    table_console().print(table)
    for line in lines:
        if line["note"]:
            print(f"{line['method']}: {line['note']}")
    for name, reason in refused.items():
        print(f"left out: {name}: {reason}")


@styled
def draw(lines: list[dict[str, Any]]) -> Figure:
    """Share of the ideal time, and traffic, one bar per method; other packages in grey."""
    shared = sorted((line for line in lines if line["share"] is not None), key=lambda line: line["share"])
    names = [line["method"] for line in shared]
    colors = [MUTED if name in PEERS else color_of(0) for name in names]
    figure, (left, right) = new_figure(10, 0.32 * len(shared) + 1.2, 1, 2, sharey=True)
    left.barh(names, [100 * line["share"] for line in shared], color=colors)
    left.set_xlabel("one-rank time / ranks, % of the slowest rank's time")
    right.barh(names, [line["mib_sent"] for line in shared], color=colors)
    right.set_xlabel("MiB sent, all ranks")
    return figure


if __name__ == "__main__":
    main()
