"""Commands are found by their folder, without being imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anchorcontext import cli


def test_a_new_file_is_a_new_command(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text('"""The commands."""\n')
    (tmp_path / "estimate.py").write_text('"""say what a run will cost.\n\nMore.\n"""\n\nraise ImportError\n')
    command = cli.Command("anchorcontext.commands.estimate", "say what a run will cost")
    assert cli.find_commands(tmp_path) == {"estimate": command}


def test_every_command_says_what_it_does_and_is_thin() -> None:
    folder = Path(cli.__file__).parent / "commands"
    assert list(cli.COMMANDS) == sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    for name, command in cli.COMMANDS.items():
        assert command.summary, f"{name} needs a docstring: its first line is what --help prints"
        assert len((folder / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 90, name


@pytest.mark.parametrize("module", ["anchorcontext", "anchorcontext.train"])
def test_modules_start_commands(module: str) -> None:
    arguments = ["train"] if module == "anchorcontext" else []
    command = [sys.executable, "-m", module, *arguments, "experiment=llama2_7b_64k", "--cfg", "job"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "training:" in shown.stdout
