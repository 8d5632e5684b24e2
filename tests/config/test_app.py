"""The command line around a function: launchers' flags, exit codes, who speaks, and what is imported."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from omegaconf import OmegaConf

from anchorcontext import cli
from anchorcontext.config import app
from anchorcontext.config.schema import SCHEMAS, ReportConfig
from anchorcontext.errors import ConfigError, RunError
from data_prep.errors import DataError


@pytest.fixture
def report(tmp_path: Path) -> list[str]:
    """Arguments that `anchorcontext report` takes."""
    return [f"+runs.one={tmp_path}", f"output={tmp_path / 'out'}"]


def start(monkeypatch: pytest.MonkeyPatch, arguments: list[str], run: Any = None) -> list[ReportConfig]:
    """Run a report command whose function only notes its config."""
    seen: list[ReportConfig] = []
    monkeypatch.setattr(sys, "argv", ["program", *arguments])
    app.hydra_command("report", run or seen.append)()
    return seen


def test_the_function_gets_the_typed_config(monkeypatch: pytest.MonkeyPatch, report: list[str]) -> None:
    (config,) = start(monkeypatch, report)
    assert isinstance(config, ReportConfig)
    assert list(config.runs) == ["one"]
    assert app.overrides() == report
    assert OmegaConf.create(app.resolved_yaml(config)) == OmegaConf.structured(config)


@pytest.mark.parametrize("flag", [["--local_rank=5"], ["--local-rank=5"], ["--local_rank", "5"]])
def test_local_rank_of_the_launchers(monkeypatch: pytest.MonkeyPatch, report: list[str], flag: list[str]) -> None:
    monkeypatch.setenv("LOCAL_RANK", "")  # so that it is put back afterwards
    monkeypatch.delenv("LOCAL_RANK")
    assert len(start(monkeypatch, [*flag, *report])) == 1
    assert os.environ["LOCAL_RANK"] == "5"
    assert app.overrides() == report


def test_local_rank_in_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert app.take_local_rank(["a=1", "--local_rank=5", "b=2"]) == ["a=1", "b=2"]
    assert os.environ["LOCAL_RANK"] == "1"


@pytest.mark.parametrize("arguments", [["--local_rank"], ["--local_rank="], ["--local_rank", "steps=3"]])
def test_local_rank_without_a_number(arguments: list[str]) -> None:
    with pytest.raises(ConfigError, match="needs a number"):
        app.take_local_rank(arguments)


def test_a_commands_own_switches() -> None:
    arguments = ["--verify", "--browse", "data=x", "--help", "window=1"]
    assert app.switches("inspect", arguments) == ["verify=true", "browse=true", "data=x", "--help", "window=1"]
    assert app.switches("report", ["--verify"]) == ["--verify"]


@pytest.mark.parametrize(
    ("local_rank", "rank", "said", "waits"),
    [("0", "0", "report: ", False), ("0", "8", "report (rank 8): ", False), ("1", "1", "report (rank 1): ", True)],
)
@pytest.mark.parametrize("error", [ConfigError.of("a.b", 3, "use 4"), DataError("no text field")])
def test_errors_end_with_code_2_and_one_message_a_node(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    report: list[str],
    error: Exception,
    local_rank: str,
    rank: str,
    said: str,
    waits: bool,
) -> None:
    slept: list[float] = []

    def fail(config: ReportConfig) -> None:
        raise error

    monkeypatch.setattr(app.time, "sleep", slept.append)
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    monkeypatch.setenv("RANK", rank)
    with pytest.raises(SystemExit) as exit_:
        start(monkeypatch, report, run=fail)
    assert exit_.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"anchorcontext {said}{error}\n"
    assert bool(slept) == waits  # while the launcher ends it, as a rule


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RunError("the loss of step 3 is nan"), "the loss of step 3 is nan"),
        (
            OSError(errno.ENOSPC, "No space left"),
            "a file: No space left: free some space there",
        ),
        (
            PermissionError(errno.EACCES, "Denied", "out"),
            "out: Denied: change its permissions",
        ),
        (
            OSError(errno.ENAMETOOLONG, "Name too long", "n"),
            "n: Name too long: choose a shorter name",
        ),
    ],
)
def test_what_ends_a_run_is_one_message_and_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], report: list[str], error: Exception, said: str
) -> None:
    with pytest.raises(SystemExit) as exit_:
        start(monkeypatch, report, run=mock.Mock(side_effect=error))
    assert exit_.value.code == 1
    assert capsys.readouterr().err.startswith(f"anchorcontext report: {said}")


def test_other_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch, report: list[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        start(monkeypatch, report, run=lambda config: 1 / 0)
    with pytest.raises(ConnectionError):
        start(monkeypatch, report, run=mock.Mock(side_effect=ConnectionError))


_ALL_HELP = """
import json, sys
from anchorcontext.cli import COMMANDS, main
codes = {}
for arguments in [["--help"], ["--version"], *([name, *flags] for name in COMMANDS
                  for flags in (["--help"], ["--cfg", "job", "--resolve"]))]:
    sys.argv = ["anchorcontext", *arguments]
    try:
        main()
        codes[" ".join(arguments)] = 0
    except SystemExit as exit_:
        codes[" ".join(arguments)] = exit_.code
print(json.dumps({"codes": codes, "torch": "torch" in sys.modules}), file=sys.stderr)
"""


def test_help_and_cfg_of_every_command_need_no_torch(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _ALL_HELP], cwd=tmp_path, capture_output=True, text=True, check=True)
    result = json.loads(done.stderr)
    assert len(result["codes"]) == 2 + 2 * len(SCHEMAS)
    assert set(result["codes"].values()) == {0}
    assert not result["torch"]
    assert "attention: anchor, document, document_reset, full" in done.stdout
    assert "Peak learning rate." in done.stdout
    assert list(tmp_path.iterdir()) == []


def run_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The installed console script."""
    script = Path(sys.executable).parent / "anchorcontext"
    return subprocess.run(
        [str(script), *arguments], capture_output=True, text=True, check=False, env=os.environ | environment
    )


def test_console_script() -> None:
    assert run_command("report").returncode == 2
    shown = run_command("train", "--local_rank=1", "experiment=llama2_7b_64k", "--cfg", "job", "--resolve", RANK="1")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert OmegaConf.create(shown.stdout).rope.base == 5e6
    wrong = run_command("train", "training.stpes=3")
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr
    assert "did you mean training.steps?" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 0, "usage: anchorcontext COMMAND"),
        (["--help"], 0, "usage: anchorcontext COMMAND"),
        (["tran"], 2, "did you mean `anchorcontext train`?"),
        (["xyz"], 2, "commands: evaluate, export_data, inspect, pack, report, simulate, train"),
    ],
)
def test_cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["anchorcontext", *arguments])
    if code:
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        assert exit_.value.code == code
    else:
        cli.main()
    captured = capsys.readouterr()
    assert said in captured.out + captured.err


def test_a_command_has_a_line_a_schema_and_a_yaml() -> None:
    assert set(cli.COMMANDS) == set(SCHEMAS)
    from anchorcontext.config.compose import config_folder

    assert {path.stem for path in config_folder().glob("*.yaml")} == {*SCHEMAS, "command"}
    assert all(name in cli.usage() and command.summary in cli.usage() for name, command in cli.COMMANDS.items())


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_launchers_on_two_ranks(launcher: str, tmp_path: Path) -> None:
    """A mistake is said once, a config is shown, `--local_rank` is taken, and no folder is written."""
    script = Path(__file__).resolve().parents[2] / "scripts" / f"{launcher}.sh"
    environment = os.environ | {"RANKS": "2", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", str(script), *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)

    wrong = launch("training.stpes=3")
    assert wrong.returncode != 0
    assert (wrong.stdout + wrong.stderr).count("did you mean training.steps?") == 1
    shown = launch("experiment=llama2_7b_64k", "--cfg", "job")
    assert shown.returncode == 0
    assert "windows_per_step: 8" in shown.stdout
    assert list(tmp_path.iterdir()) == []
