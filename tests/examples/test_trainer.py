"""The plug-and-play example runs as its user runs it, and learns."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_example_learns(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "trainer.py"), "--steps", "24", "--output", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = re.search(r"loss a byte: ([\d.]+) in the first steps, ([\d.]+) in the last", shown.stdout)
    assert found, shown.stdout
    first, last = map(float, found.groups())
    assert 3 < first < 6  # ln(258) = 5.55 before anything is learned
    assert last < first - 0.5
