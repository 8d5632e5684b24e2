"""Measures packing against its targets.

    python -m benchmarks.packing [--output FOLDER]

`tokenizing` measures the rate and memory of building stores, `pack_index` the index and the reading of windows.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import pack_index, tokenizing
from benchmarks.environment import machine
from benchmarks.figures import Figure

PACKAGES = ("numpy", "orjson", "tiktoken", "tokenizers", "datasets", "llama-models")

PARTS = {"tokenizing": tokenizing.figures, "index": pack_index.figures}
"""Each function takes a working folder and yields figures."""


def main() -> None:
    """Measure, print and, with `--output`, write `results.json`."""
    parser = argparse.ArgumentParser(description="Measures packing against its targets.")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--output", type=Path, help="folder for results.json")
    arguments = parser.parse_args()
    found: list[Figure] = []
    for part in arguments.parts:
        with tempfile.TemporaryDirectory() as folder:
            for figure in PARTS[part](Path(folder)):
                print(f"{figure.name}: {figure.shown}", flush=True)
                found.append(figure)
    Console().print(table(found))
    if arguments.output is not None:
        arguments.output.mkdir(parents=True, exist_ok=True)
        rows = [{**vars(figure), "reached": figure.reached} for figure in found]
        content = {"machine": {**machine(PACKAGES), "load_average_after": os.getloadavg()}, "results": rows}
        (arguments.output / "results.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def table(figures: list[Figure]) -> Table:
    """One line per figure."""
    drawn = Table("figure", "measured", "target", "reached")
    for figure in figures:
        reached = "" if figure.reached is None else "yes" if figure.reached else "NO"
        drawn.add_row(figure.name, figure.shown, figure.target_shown, reached)
    return drawn


if __name__ == "__main__":
    main()
