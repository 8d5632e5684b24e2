"""`anchorcontext COMMAND ...`: finds the command and hands over.

A command is a module in `anchorcontext/commands/`. The module, and torch with it, is imported once its
config has been composed and checked: `--help`, `--cfg` and a mistake in the config answer at once.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from anchorcontext import __version__


class Command(NamedTuple):
    """A command: the module whose `run(config)` it is, and one line on what it does."""

    module: str
    summary: str


def find_commands(folder: Path) -> dict[str, Command]:
    """The commands in a folder of modules, by name; their summaries are read without importing them."""
    found = {}
    for path in sorted(folder.glob("[!_]*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        found[path.stem] = Command(f"anchorcontext.commands.{path.stem}", docstring.partition("\n")[0].rstrip("."))
    return found


COMMANDS = find_commands(Path(__file__).parent / "commands")
EXIT_USAGE = 2


def main() -> None:
    """Entry point of the console script."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
    elif arguments[0] == "--version":
        print(f"anchorcontext {__version__}")
    elif arguments[0] in COMMANDS:
        del sys.argv[1]
        start(arguments[0])
    else:
        print(f"anchorcontext: {_unknown(arguments[0])}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE)


def start(name: str) -> None:
    """Run a command with the arguments in `sys.argv[1:]`, as `python -m anchorcontext.NAME` does."""
    from anchorcontext.config.app import hydra_command

    hydra_command(name, _run_of(COMMANDS[name].module))()


def usage() -> str:
    """What `anchorcontext --help` prints: one line per command."""
    lines = [f"  {name:<13}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "Long-context continual pretraining with AnchorAttention.",
            "",
            "usage: anchorcontext COMMAND [group=NAME] [key=value] ...",
            "",
            *lines,
            "",
            "  anchorcontext COMMAND --help                its groups and its whole config",
            "  anchorcontext COMMAND ... --cfg job         the config as composed, without running",
            "  anchorcontext --version",
        ]
    )


def _run_of(module: str) -> Callable[[Any], None]:
    """The `run` of a module, which is imported when it is called."""
    return lambda config: importlib.import_module(module).run(config)


def _unknown(word: str) -> str:
    close = difflib.get_close_matches(word, COMMANDS, n=1)
    hint = f"did you mean `anchorcontext {close[0]}`?" if close else f"commands: {', '.join(COMMANDS)}"
    return f"no command {word!r}; {hint}"
