"""The first minutes on a GPU: does everything that has only run on CPUs so far work there?

    scripts/gpu_check                       every check, within eight minutes
    scripts/gpu_check --seconds 240 --output FOLDER
    scripts/gpu_check --device cpu          what a CPU can run of it

One verdict per line: PASS, FAIL or SKIPPED, with the reason. A check that fails stops no other; the
exit code is 1 if any failed. Checks run in groups, each on processes of its own, so that a crash or a
hang costs one group at most. When the time is up, the rest is skipped. Writes `gpu_check.json` and
`gpu_check.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from benchmarks import gpu_check_items
from benchmarks.environment import machine

PACKAGES = ("torch", "transformers", "deepspeed", "flash-attn", "ring-flash-attn")
_LEAST_SECONDS = 3.0
"""With less time left, a group is not started."""


@dataclass(frozen=True)
class Check:
    """A function of `gpu_check_items`, called as `function(device, *arguments)` on every rank of its group."""

    name: str
    function: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Group:
    """Checks that share processes, one per rank; on `cuda` each rank has a GPU of its own."""

    checks: tuple[Check, ...]
    ranks: int = 1


@dataclass(frozen=True)
class Verdict:
    """What became of a check: PASS, FAIL or SKIPPED; `figures` are what it measured."""

    name: str
    verdict: str
    reason: str = ""
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        details = self.reason or ", ".join(f"{name} {value}" for name, value in self.figures.items())
        return f"{self.verdict:<7}  {self.name} ({self.seconds:.1f} s)" + (f": {details}" if details else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=480.0, help="time for all checks (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("gpu_check"), help="folder (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("FAIL     no GPU: torch.cuda.is_available() is False; --device cpu runs what a CPU can", flush=True)
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        todo = groups(options.device, torch.cuda.device_count(), scratch)
        verdicts = run(todo, options.device, options.seconds)
    write(options.output, options.device, verdicts)
    print(f"{summary(verdicts)}; written to {options.output}")
    return int(any(verdict.verdict == "FAIL" for verdict in verdicts))


def groups(device: str, gpus: int, scratch: str) -> list[Group]:
    """All checks for a device; those that others build on come first."""
    found = [
        Group(tuple(Check(f"kernel {name}, {dtype}", "kernel", (name, dtype)) for dtype in dtypes))
        for name, dtypes in gpu_check_items.KERNEL_DTYPES[device].items()
    ]
    worlds = [2] if device == "cpu" else [ranks for ranks in (1, 2, 4, 8) if ranks <= gpus]
    exchanges = ("gather", "ring", "ulysses")
    found += [
        Group(tuple(Check(f"exchange {name}, {ranks} ranks", "exchange", (name,)) for name in exchanges), ranks)
        for ranks in worlds
    ]
    steps = [Check(f"training step, ZeRO {stage}", "zero_step", (stage, scratch)) for stage in range(4)]
    runs = [Check("resume", "resume", (scratch,)), Check("export", "export_model", (scratch,))]
    figures = Check("attention, forward and backward", "attention_figures")
    return [*found, Group((*steps, *runs)), Group((figures,))]


def run(todo: Sequence[Group], device: str, seconds: float) -> list[Verdict]:
    """Every group in turn; each verdict is printed when its group ends."""
    deadline = time.monotonic() + seconds
    verdicts = []
    for group in todo:
        for verdict in _run_group(group, device, deadline):
            verdicts.append(verdict)
            print(verdict, flush=True)
    return verdicts


def _run_group(group: Group, device: str, deadline: float) -> Iterator[Verdict]:
    if deadline - time.monotonic() < _LEAST_SECONDS:
        yield from (Verdict(check.name, "SKIPPED", "the time is up: allow more by --seconds") for check in group.checks)
        return
    with tempfile.TemporaryDirectory() as folder:
        ended = _start(group, device, deadline, folder)
        by_rank = [_answers(Path(folder) / str(rank)) for rank in range(group.ranks)]
    for number, check in enumerate(group.checks):
        answers = [answers[number] for answers in by_rank if number < len(answers)]
        worst = [answer for answer in answers if answer["verdict"] != "PASS"]
        if worst or len(answers) == group.ranks:
            yield Verdict(check.name, **(worst or answers)[0])
        elif ended:
            yield Verdict(check.name, "FAIL", ended)
        else:
            yield Verdict(check.name, "SKIPPED", "the time is up: allow more by --seconds")


def _start(group: Group, device: str, deadline: float, folder: str) -> str:
    """Run a group's processes until they end or the time is up; returns how they ended where they crashed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = mp.start_processes(_rank, (group, device, port, folder), group.ranks, join=False)
    try:
        while not processes.join(timeout=max(0.1, min(5.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return ""
    except (mp.ProcessExitedException, mp.ProcessRaisedException) as error:
        return f"its process ended: {str(error).strip().splitlines()[-1]}"
    finally:
        for process in processes.processes:
            process.kill()
            process.join()
    return "its process ended without an answer"


def _rank(rank: int, group: Group, device_type: str, port: int, folder: str) -> None:
    """One process of a group: joins the others, runs every check, and writes one line per verdict."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(group.ranks))
    os.environ.update(LOCAL_WORLD_SIZE=str(group.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if device_type == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
        torch.set_num_threads(1)
    device = torch.device(device_type, rank) if device_type == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", rank=rank, world_size=group.ranks)
    with open(Path(folder) / str(rank), "w", encoding="utf-8") as answers:
        for check in group.checks:
            answers.write(json.dumps(_checked(check, device)) + "\n")
            answers.flush()
    dist.destroy_process_group()


def _checked(check: Check, device: torch.device) -> dict[str, Any]:
    """A verdict's fields. Whatever a check raises is its verdict's reason."""
    started = time.monotonic()
    figures: dict[str, Any] = {}
    verdict, reason = "PASS", ""
    try:
        figures = getattr(gpu_check_items, check.function)(device, *check.arguments) or {}
    except gpu_check_items.SkippedError as error:
        verdict, reason = "SKIPPED", str(error)
    except Exception as error:
        verdict, reason = "FAIL", " ".join(f"{type(error).__name__}: {error}".split())
    return {"verdict": verdict, "reason": reason, "seconds": time.monotonic() - started, "figures": figures}


def _answers(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def summary(verdicts: Sequence[Verdict]) -> str:
    counts = {kind: sum(verdict.verdict == kind for verdict in verdicts) for kind in ("PASS", "FAIL", "SKIPPED")}
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def write(folder: Path, device: str, verdicts: Sequence[Verdict]) -> None:
    """`gpu_check.json` and `gpu_check.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"device": device, "machine": machine(PACKAGES), "checks": [asdict(verdict) for verdict in verdicts]}
    (folder / "gpu_check.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    lines = [f"# GPU check on {device}: {summary(verdicts)}", "", "| verdict | check | seconds | details |"]
    lines.append("| --- | --- | --- | --- |")
    for verdict in verdicts:
        details = verdict.reason or ", ".join(f"{name} {value}" for name, value in verdict.figures.items())
        details = details.replace("|", "\\|")
        lines.append(f"| {verdict.verdict} | {verdict.name} | {verdict.seconds:.1f} | {details} |")
    (folder / "gpu_check.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
