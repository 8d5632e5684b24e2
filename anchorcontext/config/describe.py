"""What people read about a command's config: every key with its type, default and meaning, by section.

Meanings are the docstrings below the fields, read from the source; types and allowed values are those
of the schema; defaults are those of the composed config.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import textwrap
import types
from collections.abc import Iterator
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from omegaconf import MISSING, DictConfig, OmegaConf

from anchorcontext.config.folder import groups_of
from anchorcontext.config.rules import Range
from anchorcontext.config.schema import SCHEMAS

_TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "any value"}
_PLURALS = {str: "text", int: "whole numbers", float: "numbers", Any: "any values"}
_POWERS: dict[float, str] = {2**31 - 1: "2^31 - 1", 2**32 - 1: "2^32 - 1", 2**63 - 1: "2^63 - 1"}


@dataclass(frozen=True)
class Entry:
    """One key.

    Attributes:
        key: dotted.
        takes: type and allowed values.
        default: `default: VALUE`, `must be given` or `optional`.
        meaning: what it does, and its unit.
    """

    key: str
    takes: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Section:
    """The keys of one part of a config.

    Attributes:
        name: empty for a command's own keys.
        meaning: what the part is.
        note: what only this command does with it.
        is_group: whether files of configs/ can be chosen for it.
        entries: its keys.
    """

    name: str
    meaning: str
    note: str
    is_group: bool
    entries: tuple[Entry, ...]


def sections(command: str, config: DictConfig) -> list[Section]:
    """Every key of `command`, its own keys first, with the defaults of `config` (composed, unresolved)."""
    schema, values = SCHEMAS[command], OmegaConf.to_container(config, resolve=False)
    assert isinstance(values, dict)
    parts: list[Section] = []
    own: list[Entry] = []
    hints, told = get_type_hints(schema), meanings(schema)
    for field in fields(schema):
        kind = hints[field.name]
        if not is_dataclass(kind):
            own.append(_entry(field.name, field, kind, values.get(field.name), told[field.name], schema.unread))
            continue
        keys = tuple(_entries(field.name, kind, values.get(field.name), schema.unread))
        parts.append(Section(field.name, summary_of(kind), told[field.name], field.name in groups_of(command), keys))
    return [Section("", "", "", False, tuple(own)), *parts] if own else parts


@functools.cache
def meanings(kind: Any) -> dict[str, str]:
    """The docstring below each field of a dataclass, in one line; empty where there is none."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    found = {field.name: "" for field in fields(kind)}
    for before, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            found[before.target.id] = " ".join(str(ast.literal_eval(after.value)).split())
    return found


def summary_of(kind: Any) -> str:
    """The first paragraph of a class's docstring, in one line."""
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


def _entries(prefix: str, kind: Any, values: Any, unread: frozenset[str]) -> Iterator[Entry]:
    hints, told = get_type_hints(kind), meanings(kind)
    for field in fields(kind):
        key, inner = f"{prefix}.{field.name}", hints[field.name]
        value = values.get(field.name) if isinstance(values, dict) else values
        if is_dataclass(inner):
            yield from _entries(key, inner, value, unread)
            continue
        yield _entry(key, field, inner, value, told[field.name], unread)
        item = get_args(inner)[-1] if get_args(inner) else None
        if is_dataclass(item) and key not in unread:
            yield from _entries(f"{key}.NAME", item, OmegaConf.to_container(OmegaConf.structured(item)), unread)


def _entry(key: str, field: Field, kind: Any, value: Any, meaning: str, unread: frozenset[str]) -> Entry:
    if value == MISSING:
        default = "optional" if key in unread else "must be given"
    else:
        default = f"default: {_shown(value)}"
    return Entry(key, _takes(kind, field.metadata), default, meaning)


def _takes(kind: Any, rules: Any) -> str:
    """The type and the allowed values of a field, in words."""
    or_null = ""
    if isinstance(kind, types.UnionType):
        kind, or_null = next(part for part in get_args(kind) if part is not type(None)), ", or null"
    if "words" in rules:
        words = ", ".join(rules["words"])
        return f"list of any of {words}" if get_origin(kind) is list else f"one of {words}"
    if get_origin(kind) in (list, dict):
        item = _PLURALS.get(get_args(kind)[-1], "sections")
        return f"list of {item}" if get_origin(kind) is list else f"dictionary of {item} by name"
    allowed = f" {_range(rules['range'])}" if "range" in rules else ""
    return f"{_TYPES[kind]}{allowed}{or_null}"


def _range(allowed: Range) -> str:
    text = str(allowed)
    high = f"{allowed.high:,}"
    return text.replace(high, _POWERS[int(allowed.high)] if allowed.high in _POWERS else high)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str) and value and value.isprintable():
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return f"[{', '.join(value)}]"
    return json.dumps(value)
