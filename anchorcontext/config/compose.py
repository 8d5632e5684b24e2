"""From YAML, groups and overrides to a typed, checked config, by Hydra.

Hydra stops at the first override it cannot apply. Here each such override is noted and left out, and
composing continues, so that one error lists all of them together with what `check.py` finds.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import hydra
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException, ValidationError

from anchorcontext.config.check import problems
from anchorcontext.config.fields import leaves
from anchorcontext.config.folder import all_groups, config_folder, groups_of
from anchorcontext.config.help import help_text
from anchorcontext.config.schema import SCHEMAS
from anchorcontext.errors import ConfigError, Problem
from anchorcontext.machine import launched_with

_TYPES = (
    ("is not Optional|NoneType", "must not be null: give a value, or leave it out"),
    ("valid bool", "must be true or false"),
    ("to Float", "must be a number"),
    ("to Integer", "must be a whole number, without exponent or decimal point"),
    ("is not a ListConfig", "must be a list: [VALUE, ...]"),
    (r"subclass of \w+Config|to Dict\[", "must be a dictionary: {KEY: VALUE, ...}"),
    ("to string", "must be a single value, not a list or dictionary"),
)
"""What OmegaConf says of a value that a field does not take, and what we say."""
_HELP = ("--help", "-h")
_COMPOSE_ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError)


@dataclass(frozen=True)
class Composed:
    """A typed, checked config and the overrides that led to it."""

    config: Any
    overrides: list[str]


def compose(command: str, arguments: Sequence[str]) -> Composed | None:
    """The config of `command`, checked; None where something was only printed (`--help`, `--cfg`).

    Args:
        command: a key of `SCHEMAS`.
        arguments: what follows the command: overrides and Hydra's flags.

    Raises:
        ConfigError: all overrides that do not apply and all problems of the check, at once.
    """
    _refuse_flags(arguments)
    remaining = [argument for argument in arguments if argument not in _HELP]
    asks_help = len(remaining) < len(arguments)
    read_as = read_unresolved if asks_help else read_config
    found: list[Problem] = []
    while True:
        try:
            read = read_as(command, remaining)
            break
        except _COMPOSE_ERRORS as error:
            if folder := re.search(r"Additional config directory '(.*)' not found", str(error)):
                raise ConfigError([*found, Problem("--config-dir", folder[1], "no such folder")]) from error
            culprit = _culprit(remaining, error)
            if culprit is None:
                raise ConfigError([*found, Problem("config", command, _explain(error))]) from error
            found.append(_override_problem(command, culprit, error))
            if asks_help or {"--cfg", "-c"} & set(remaining):
                raise ConfigError(found) from error  # show no config that lacks what was asked for
            remaining.remove(culprit)
    composed = None
    if read is not None and asks_help:
        print(help_text(command, read[0]))
    elif read is not None:
        composed = Composed(typed(read[0]), read[1])
        found += _unknown_keys(command, read[0])
        refused = {problem.key for problem in found}  # left out above, so missing below, as all of a group's file is
        for problem in problems(composed.config, world_size=launched_with("WORLD_SIZE", 1, least=1)):
            is_empty = problem.value in (MISSING, "{}")
            if not (is_empty and refused & {problem.key, problem.key.partition(".")[0]}):
                found.append(problem)
    if found:
        raise ConfigError(found)
    return composed


def _refuse_flags(arguments: Sequence[str]) -> None:
    """Refuse what Hydra accepts and no command here uses: many runs, other files, Hydra's own settings."""
    found = []
    for argument in arguments:
        name, _, value = argument.lstrip("+~").partition("=")
        if name in ("-m", "--multirun"):
            found.append(Problem("--multirun", "given", "a command is one run: start it once per setting"))
        elif name in ("-cn", "--config-name", "-cp", "--config-path"):
            fix = "a command has one config: put yours in a group's file or an experiment, in --config-dir FOLDER"
            found.append(Problem(name, value or "given", fix))
        elif name.startswith(("hydra.", "hydra/")) and name != "hydra.searchpath":
            fix = "Hydra only composes the config here: leave it out; to choose folders, set run.folder or output"
            found.append(Problem(name, value, fix))
    if found:
        raise ConfigError(found)


def typed(node: Any) -> Any:
    """The dataclass instance that a composed config stands for; what is missing stays `???`.

    Keys that the dataclass lacks are left out: `_unknown_keys` reports them.
    """
    if isinstance(node, DictConfig):
        values = {str(key): MISSING if OmegaConf.is_missing(node, key) else typed(node[key]) for key in node}
        kind = OmegaConf.get_type(node)
        if kind is None or not is_dataclass(kind):
            return values
        return kind(**{field.name: values[field.name] for field in fields(kind) if field.name in values})
    if isinstance(node, ListConfig):
        return [typed(item) for item in node]
    return node


def read_config(command: str, arguments: Sequence[str]) -> tuple[DictConfig, list[str]] | None:
    """The config as Hydra composes it, unchecked and resolved, and its overrides; None where Hydra only printed.

    Raises:
        HydraException, OmegaConfBaseException, ValueError: as Hydra finds them, one at a time.
    """
    read = read_unresolved(command, arguments)
    if read is not None:
        OmegaConf.resolve(read[0])
    return read


def read_unresolved(command: str, arguments: Sequence[str]) -> tuple[DictConfig, list[str]] | None:
    """As `read_config`, with interpolations as they are written."""
    for name, schema in SCHEMAS.items():  # the dataclass that the command's YAML starts from
        ConfigStore.instance().store(name=f"{name}_schema", node=schema, provider="anchorcontext")
    captured: list[tuple[DictConfig, list[str]]] = []

    @hydra.main(version_base="1.3", config_path=str(config_folder()), config_name=command)
    def capture(config: DictConfig) -> None:
        captured.append((config, list(HydraConfig.get().overrides.task)))

    with _started_as(f"anchorcontext {command}", arguments):
        capture()
    return captured[0] if captured else None


@contextmanager
def _started_as(program: str, arguments: Sequence[str]) -> Iterator[None]:
    """What Hydra reads of the process: its arguments, and the switch that makes it raise errors."""
    argv, switch = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv, os.environ["HYDRA_FULL_ERROR"] = [program, *arguments], "1"
    try:
        yield
    finally:
        sys.argv = argv
        if switch is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = switch


def _unknown_keys(command: str, node: DictConfig, prefix: str = "") -> Iterator[Problem]:
    """Keys beyond the schema, which Hydra lets an override with `+` add."""
    kind = OmegaConf.get_type(node)
    known = {field.name for field in fields(kind)} if is_dataclass(kind) else None
    for name in node:
        key = f"{prefix}{name!s}"
        if known is not None and name not in known:
            yield Problem(key, OmegaConf.select(node, str(name)), f"no such key{_did_you_mean(command, key)}")
        elif not OmegaConf.is_missing(node, name) and isinstance(node[name], DictConfig):
            yield from _unknown_keys(command, node[name], f"{key}.")


def _culprit(arguments: Sequence[str], error: Exception) -> str | None:
    """The override that an error of Hydra is about; None where it is not about an override."""
    if isinstance(error, OverrideParseException):
        return error.override if error.override in arguments else None
    message = str(error)
    if message.startswith("Config group override must be"):
        return next((argument for argument in arguments if _names_no_file(argument)), None)
    for is_exact in (True, False):  # where a key is given twice, Hydra may mean either
        for argument in arguments:
            key, _, value = argument.lstrip("+").partition("=")
            exact = (f"'{key}/{value}'", f"'{argument}'")
            applied = re.search(rf"override {re.escape(argument)}$", message, re.MULTILINE)
            if key and (any(text in message for text in exact) or applied if is_exact else f"'{key}'" in message):
                return argument
    return None


def _names_no_file(override: str) -> bool:
    """Whether an override sets a group, or no key at all, to something that is not a name."""
    key, _, value = override.lstrip("+").partition("=")
    return key in ("", *all_groups()) and not isinstance(yaml.safe_load(value), str | list)


def _override_problem(command: str, override: str, error: Exception) -> Problem:
    """What is wrong with an override, and what to type instead."""
    key, _, value = override.lstrip("+~").partition("=")
    cause = error.__cause__
    unknown = isinstance(cause, ConfigKeyError | ConfigAttributeError) and str(error).startswith("Could not override")
    source = re.fullmatch(r"data\.sources\.([^.]+)(?:\.([^.]+))?", key)
    new_source = ("reference_type=Dict[str, SourceConfig]", "is not a subclass of SourceConfig")
    if source and value != "null" and any(said in str(cause) for said in new_source):
        whole = value if value.startswith("{") else f"{{{source[2] or 'path'}: {value}}}"
        fix = f"a new source is added as a whole: '+data.sources={{{source[1]}: {whole}}}'"
    elif unknown and (source or not any(f"{key}.".startswith(f"{name}.") for name, _ in leaves(SCHEMAS[command]()))):
        fix = f"no such key{_did_you_mean(command, key)}"
    elif unknown:
        fix = f"entries of a dictionary are added with +: '+{key}={value}'"
    elif str(error).startswith("Config group override must be"):
        fix = "a group is set by the name of a file: GROUP=NAME; leave it out for none"
    elif override.startswith("~"):
        fix = "a key cannot be removed from a config: set another value"
    elif key in all_groups() and key not in (groups := groups_of(command)):
        own = f"no group {key}; its groups are {', '.join(groups)}" if groups else "no groups"
        fix = f"{command} has {own}"
    elif isinstance(error, MissingConfigException):
        options = list(error.options or [])
        fix = f"no such file in group {key}: choose from {', '.join(options)}" if options else f"no file in group {key}"
    elif "Cannot merge" in str(cause):
        fix = "has a list where a dictionary belongs, or a dictionary where a list belongs"
    elif no_key := re.search(r"^Key '.*' not in '\w+Config'\n\s*full_key: (.*)$", str(cause), re.MULTILINE):
        fix = f"no such key: {no_key[1]}"
    elif isinstance(cause, ValidationError):
        fix = _wrong_type(key, cause)
    elif isinstance(error, OverrideParseException):
        reason = _explain(error.__cause__ or error)
        fix = f"cannot be read ({reason}): quote values that are not plain words: 'KEY=\"VALUE\"'"
    else:
        fix = _explain(error)
    return Problem(key, value, fix)


def _wrong_type(key: str, error: ValidationError) -> str:
    """Why a field does not take a value; names the field where an override gives several."""
    said = str(error).splitlines()[0]
    said = next((words for pattern, words in _TYPES if re.search(pattern, said)), said)
    if key.startswith(f"{error.full_key}."):
        return f"no such key: {error.full_key} is a single value"
    return said if error.full_key == key else f"{error.full_key}: {said}"


def _did_you_mean(command: str, key: str) -> str:
    known = [name for name, _ in leaves(SCHEMAS[command]())] + groups_of(command)
    last = key.rpartition(".")[2]
    close = [name for name in known if name.rpartition(".")[2] == last]
    close = close or difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else f"; `anchorcontext {command} --help` lists them all"


def _explain(error: BaseException) -> str:
    """The error and its cause in one line each, without Hydra's search path."""
    lines = []
    for link in (error, error.__cause__):
        if link is not None:
            text = str(link).partition("Config search path:")[0]
            lines += [line.strip() for line in text.splitlines() if line.strip() and "object_type" not in line]
    if "@experiment." in str(error):
        lines.append("an experiment's file must begin with the line `# @package _global_`")
    return "; ".join(dict.fromkeys(lines))
