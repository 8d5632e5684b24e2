"""The whole pipeline on real text in a few minutes on 2 CPU cores: `make demo`.

A model of about 1M parameters learns from windows of 128 tokens, is extended to 4,096 with
AnchorAttention and a raised RoPE base (killed half-way and resumed), and is compared with its base
and with a control that saw as many extra tokens at 128. Everything is written to runs/demo; every
command is printed as a user types it, and the last step is a report as one HTML page.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from commands import Command, CommandError, Runner

from anchorcontext.data.windows import PackedWindows

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path("runs/demo")
STEPS = Path(__file__).with_name("steps.sh")

EXTEND_STEPS = 40
"""As in configs/experiment/demo_extend.yaml."""
FAR_ROW = 2048
FAR = "2,048 to 4,095"
"""Where the base must fail and the extended model must not: the last of the evaluation's buckets."""
LEAST_DIFFERENCE = 0.3
"""Nats per token by which the extended model must be better there than the base, and than the control."""

_TITLE = re.compile(
    r"# (?P<title>.+) \[(?P<seconds>\d+) s(?P<log_only>, log only)?(, killed after step (?P<kill_at_step>\d+))?\]"
)


def main() -> None:
    commands = demo_commands()
    if (ROOT / FOLDER).exists():
        print(f"Removing {FOLDER} of an earlier demo.")
        shutil.rmtree(ROOT / FOLDER)
    runner = Runner(commands, ROOT, ROOT / FOLDER / "logs", environment())
    try:
        seconds = runner.run_all()
        for line in check(ROOT / FOLDER):
            runner.console.print(line)
    except (CommandError, AssertionError) as error:
        raise SystemExit(f"{error}\n\nThe demo failed.") from None
    except KeyboardInterrupt:
        raise SystemExit("\nStopped; `make demo` starts again from the beginning.") from None
    runner.console.print(f"\nDone in {seconds:.0f} s. Open {FOLDER / 'report' / 'index.html'}")


def environment() -> dict[str, str]:
    """For every command: this Python's programs, no GPU, no network, one thread per process, room for tables."""
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "120",
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def demo_commands() -> list[Command]:
    """The commands of steps.sh, behind its heading; shares are seconds on the machine where the demo was tuned."""
    _, *steps = STEPS.read_text(encoding="utf-8").split("\n\n")
    return [_command(*step.split("\n", maxsplit=1)) for step in steps]


def _command(title: str, line: str) -> Command:
    said = _TITLE.fullmatch(title)
    assert said is not None, f"{STEPS}: {title!r} does not end in [SECONDS s]"
    return Command(
        said["title"],
        lambda: shlex.split(_with_window(line.replace("\\\n", ""))),
        float(said["seconds"]),
        show=said["log_only"] is None,
        kill_at_step=int(said["kill_at_step"]) if said["kill_at_step"] else None,
    )


def _with_window(line: str) -> str:
    return line.replace("$WINDOW", str(window_to_show())) if "$WINDOW" in line else line


def window_to_show() -> int:
    """The first window of both sources with a handful of pieces; the first of all where there is none."""
    windows = PackedWindows(ROOT / FOLDER / "data" / "index-4096")
    several = (number for number in range(len(windows)) if 4 <= len(windows[number].piece_lengths) <= 9)
    return next((number for number in several if len(set(windows[number].piece_sources)) > 1), 0)


def check(folder: Path) -> list[str]:
    """What was shown, in words.

    Raises:
        AssertionError: the base does not fail far beyond its length, the extension does not cure it,
            the control does as well as the extension, or the resumed run missed or repeated a step.
    """
    losses = {}
    with (folder / "evaluation" / "by_position.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            losses[line["model"], int(line["low"])] = float(line["loss"])
    near = max(low for _, low in losses if low < 128)
    base, extended, control = (losses[name, FAR_ROW] for name in ("base", "extended", "control"))
    steps = [json.loads(line)["step"] for line in (folder / "extend" / "metrics.jsonl").read_text().splitlines()]
    rises = base - losses["base", near]
    assert rises >= LEAST_DIFFERENCE, f"the base should fail beyond its length, but its loss rises by only {rises:.2f}"
    for name, loss in (("base", base), ("control", control)):
        assert loss - extended >= LEAST_DIFFERENCE, (
            f"at positions {FAR} the extended model should be {LEAST_DIFFERENCE} nats better than the {name}, "
            f"but has {extended:.2f} against {loss:.2f}"
        )
    assert steps == list(range(1, EXTEND_STEPS + 1)), f"the resumed run has not each step once: {steps}"
    own = f"at positions {near} to 127: {losses['base', near]:.2f}"
    return [
        f"\nLoss at positions {FAR}, in nats a token:",
        f"  base      {base:.2f}   trained at 128 ({own})",
        f"  control   {control:.2f}   as many extra tokens, at 128",
        f"  extended  {extended:.2f}   extended to 4,096, killed once and resumed",
    ]


if __name__ == "__main__":
    main()
