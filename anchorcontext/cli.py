"""`anchorcontext COMMAND ...`: finds the command and hands over.

A command's module, and torch with it, is imported once its config has been composed and checked:
`--help`, `--cfg` and a mistake in the config answer at once.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from anchorcontext import __version__


class Command(NamedTuple):
    """A command: the module whose `run(config)` it is, and what it does in a line."""

    module: str
    summary: str


COMMANDS = {
    "pack": Command("anchorcontext.pack", "tokenize documents and pack them into windows"),
    "inspect": Command("anchorcontext.inspect", "show a packed window as text: pieces, anchors, labels, mask"),
    "export_data": Command("anchorcontext.export_data", "packed windows as a Hugging Face dataset"),
    "train": Command("anchorcontext.train.__main__", "train on packed windows, under torchrun or deepspeed for ranks"),
    "evaluate": Command("anchorcontext.evaluate.__main__", "loss by position of checkpoints on held-out windows"),
    "simulate": Command("anchorcontext.simulate", "what sharing windows among ranks would move and cost, without them"),
    "report": Command("anchorcontext.report", "one HTML page from runs and evaluations"),
}
EXIT_USAGE = 2


def main() -> None:
    """Entry point of the console script."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
    elif arguments[0] == "--version":
        print(f"anchorcontext {__version__}")
    elif arguments[0] in COMMANDS:
        _start(arguments[0], arguments[1:])
    else:
        print(f"anchorcontext: {_unknown(arguments[0])}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE)


def usage() -> str:
    """What `anchorcontext --help` prints: one line a command."""
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


def _start(name: str, arguments: list[str]) -> None:
    from anchorcontext.config.app import hydra_command

    sys.argv[1:] = arguments
    hydra_command(name, _run_of(COMMANDS[name].module))()


def _run_of(module: str) -> Callable[[Any], None]:
    """The `run` of a module, which is imported when it is called."""
    return lambda config: importlib.import_module(module).run(config)


def _unknown(word: str) -> str:
    close = difflib.get_close_matches(word, COMMANDS, n=1)
    hint = f"did you mean `anchorcontext {close[0]}`?" if close else f"commands: {', '.join(COMMANDS)}"
    return f"no command {word!r}; {hint}"
