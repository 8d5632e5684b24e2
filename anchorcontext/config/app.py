"""Turns a function of a typed config into a command line, the same under every launcher.

Hydra composes and this module runs: the function is called after Hydra is done, so Hydra writes no
folder, configures no logging and hides no traceback. A config that cannot be used ends the process
with exit code 2 and one message that lists every problem, before any process group.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from omegaconf import OmegaConf

from anchorcontext.config.compose import compose
from anchorcontext.config.schema import SCHEMAS
from anchorcontext.errors import ConfigError, RunError
from data_prep.disk import place_error
from data_prep.errors import DataError

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
QUIET_SECONDS = 10
"""Seconds that a rank other than its node's first waits before it prints an error."""

_overrides: list[str] = []


def hydra_command(command: str, run: Callable[[Any], None]) -> Callable[[], None]:
    """The `main()` of a command: `command` names its schema and its YAML, `run` receives the typed config.

    `main()` reads `sys.argv`: overrides, Hydra's flags (`--help`, `--cfg job --resolve`,
    `--config-dir`), the command's own switches and the `--local_rank` of the deepspeed launcher. On a
    config or data error it prints one message per node and exits with code 2; on an error that ends a
    run in progress, with code 1.
    """

    def main() -> None:
        try:
            composed = compose(command, switches(command, take_local_rank(sys.argv[1:])))
            if composed is None:
                return  # --help, --cfg and the like have printed what was asked for
            _overrides[:] = composed.overrides
            run(composed.config)
        except (ConfigError, DataError) as error:
            _exit(command, error, EXIT_BAD_INPUT)
        except RunError as error:
            _exit(command, error, EXIT_FAILED)
        except OSError as error:
            if (refused := place_error(error, "a file")) is None:
                raise
            _exit(command, refused, EXIT_FAILED)

    return main


def overrides() -> list[str]:
    """The overrides this process was started with, in order: `["experiment=demo", "optim.lr=1e-4"]`."""
    return list(_overrides)


def resolved_yaml(config: Any) -> str:
    """The config as YAML, every interpolation resolved: what a run keeps as `config.yaml`."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def take_local_rank(arguments: Sequence[str]) -> list[str]:
    """`arguments` without the launcher's `--local_rank=N`, which sets LOCAL_RANK where that is unset.

    Raises:
        ConfigError: the flag without a number.
    """
    remaining = list(arguments)
    for index, argument in enumerate(remaining):
        flag, equals, value = argument.partition("=")
        if flag not in ("--local_rank", "--local-rank"):
            continue
        if not equals:
            value = remaining[index + 1] if index + 1 < len(remaining) else ""
        if not value.isdecimal():
            raise ConfigError.of(flag, value or "(nothing)", "needs a number; launchers set this flag, so you need not")
        os.environ.setdefault("LOCAL_RANK", value)
        return remaining[:index] + remaining[index + (1 if equals else 2) :]
    return remaining


def switches(command: str, arguments: Sequence[str]) -> list[str]:
    """`arguments` with a command's own switches as overrides: `--verify` is `verify=true`."""
    known = {f"--{field.name}" for field in fields(SCHEMAS[command]) if field.type == "bool"}
    return [f"{argument[2:]}=true" if argument in known else argument for argument in arguments]


def _exit(command: str, error: Exception, code: int) -> None:
    """Print what is wrong, once per node, and exit.

    Launchers end all ranks as soon as one has ended. So the first rank of a node prints at once, and
    the others, which usually have found the same, wait to be ended and print only if they are not.
    """
    local_rank, rank = (os.environ.get(name, "0") for name in ("LOCAL_RANK", "RANK"))
    if local_rank != "0":
        time.sleep(QUIET_SECONDS)
    where = f" (rank {rank})" if rank != "0" else ""
    print(f"anchorcontext {command}{where}: {error}", file=sys.stderr, flush=True)
    raise SystemExit(code) from None
