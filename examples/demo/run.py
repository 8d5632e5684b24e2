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
import shutil
import sys
from pathlib import Path

from commands import Command, CommandError, Runner

from anchorcontext.data.windows import PackedWindows

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path("runs/demo")

BASE_STEPS, EXTEND_STEPS, CONTROL_STEPS = 400, 40, 40
"""As in configs/experiment/demo_*.yaml."""
KILL_AT_STEP = 20
"""After the checkpoint of step 18, so that two steps are lost and done again."""
FAR_ROW = 2048
FAR = "2,048 to 4,095"
"""Where the base must fail and the extended model must not: the last of the evaluation's buckets."""
LEAST_DIFFERENCE = 0.3
"""Nats a token by which the extended model must be better there than the base, and than the control."""

TORCHRUN = ["torchrun", "--nproc-per-node", "2", "-m"]


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
    """For every command: this Python's programs, no GPU, no network, one thread a process, room for tables."""
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
    """The steps; shares are seconds on the machine where the demo was tuned."""
    extend = [*TORCHRUN, "anchorcontext.train", "experiment=demo_extend"]
    report = {
        "title": '"AnchorContext demo: from 128 to 4,096 tokens"',
        "+evaluations.demo": f"{FOLDER}/evaluation",
        "+runs": f"{{base: {FOLDER}/base, extended: {FOLDER}/extend, control: {FOLDER}/control}}",
        "+pictures": f"{{The attention mask of a training window: {FOLDER}/mask.png}}",
        "+indexes": f"{{long: {FOLDER}/data/index-4096, short: {FOLDER}/data/index-128}}",
        "output": f"{FOLDER}/report",
    }
    models = {
        "base": f"{FOLDER}/base/hf/step-{BASE_STEPS:06d}",
        "extended": f"{FOLDER}/extend/hf/step-{EXTEND_STEPS:06d}",
        "control": f"{FOLDER}/control/hf/step-{CONTROL_STEPS:06d}",
    }
    return [
        Command(
            "Text of two sources, a tokenizer trained on it, the config of a tiny LLaMA",
            ["python", "examples/demo/prepare.py", "--output", f"{FOLDER}/start"],
            12,
        ),
        Command(
            "Tokenize, and pack windows of 128 tokens", ["anchorcontext", "pack", "data=demo_128", "page=false"], 14
        ),
        Command(
            "Pack windows of 4,096 from the same tokens", ["anchorcontext", "pack", "data=demo_4096", "page=false"], 4
        ),
        Command(
            "Look at a window and at its mask",
            inspect_words,
            8,
        ),
        Command(
            "Train the base at 128 tokens, on 2 ranks",
            [*TORCHRUN, "anchorcontext.train", "experiment=demo_base"],
            100,
            show=False,
        ),
        Command(
            "Extend it to 4,096 tokens, 2 ranks sharing each window; kill it half-way",
            extend,
            51,
            show=False,
            kill_at_step=KILL_AT_STEP,
        ),
        Command("The same command again: it goes on from its last checkpoint", extend, 66, show=False),
        Command(
            "The control: as many extra tokens at 128",
            [*TORCHRUN, "anchorcontext.train", "experiment=demo_control"],
            54,
            show=False,
        ),
        Command(
            "Loss by position of all three on held-out text",
            [
                *TORCHRUN,
                *("anchorcontext.evaluate", "data=demo_4096", "windows=8", f"output={FOLDER}/evaluation"),
                "+models=" + "{" + ", ".join(f"{name}: {path}" for name, path in models.items()) + "}",
            ],
            28,
        ),
        Command("One page of all of it", ["anchorcontext", "report", *(f"{k}={v}" for k, v in report.items())], 10),
    ]


def inspect_words() -> list[str]:
    """The command that shows the first window of both sources with a handful of pieces."""
    windows = PackedWindows(ROOT / FOLDER / "data" / "index-4096")
    several = (number for number in range(len(windows)) if 4 <= len(windows[number].piece_lengths) <= 9)
    chosen = next((number for number in several if len(set(windows[number].piece_sources)) > 1), 0)
    shown = ("max_pieces=3", "boundary_tokens=2", f"picture={FOLDER}/mask.png")
    return ["anchorcontext", "inspect", "data=demo_4096", f"window={chosen}", *shown]


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
    assert rises >= LEAST_DIFFERENCE, f"the base should fail beyond its length, but its loss rises by {rises:.2f} alone"
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
