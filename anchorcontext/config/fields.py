"""The rules that every field states for itself: mandatory values, words to choose from, ranges, nesting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from omegaconf import MISSING

from anchorcontext.config.rules import Command, how_to_give
from anchorcontext.errors import Problem


def leaves(config: Any) -> Iterator[tuple[str, Any]]:
    """Every field of a config with its dotted key; an empty dictionary is a leaf itself."""
    for key, value, _ in _leaves(config):
        yield key, value


def _leaves(
    config: Any, prefix: str = "", rules: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Dotted key, value and metadata of every leaf."""
    children: list[tuple[str, Any, Mapping[str, Any]]]
    if is_dataclass(config):
        children = [(field.name, getattr(config, field.name), field.metadata) for field in fields(config)]
    elif isinstance(config, dict) and config:
        children = [(str(name), child, {}) for name, child in config.items()]
    else:
        yield prefix, config, rules or {}
        return
    for name, child, own in children:
        yield from _leaves(child, f"{prefix}.{name}" if prefix else name, own)


def field_problems(config: Command) -> Iterator[Problem]:
    """Fields that are missing or empty, or whose word or number is not one the field takes."""
    defaults = dict(leaves(type(config)()))
    for key, value, rules in _leaves(config):
        words, allowed = rules.get("words"), rules.get("range")
        if value == MISSING:
            follows_another = "${" in str(defaults.get(key))  # which is missing itself, and reported
            if key not in config.unread and not follows_another:
                yield Problem(key, MISSING, how_to_give(key))
        elif value == "" and defaults.get(key, "") != "":
            yield Problem(key, "''", "is empty: give a value, or leave it out")
        elif words and (unknown := [word for word in _as_list(value) if word not in words]):
            yield Problem(key, unknown[0], f"choose from {', '.join(words)}")
        elif allowed and value is not None and not allowed.admits(value):
            yield Problem(key, value, f"must be {allowed}" + ("" if abs(value) < math.inf else ", and finite"))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def nested_problems(config: Any, prefix: str = "") -> Iterator[Problem]:
    """Lists and dictionaries as items of a list or dictionary of single values: no type check refuses them."""
    hints = get_type_hints(type(config))
    for field in fields(config):
        key, value = f"{prefix}{field.name}", getattr(config, field.name)
        if is_dataclass(value):
            yield from nested_problems(value, f"{key}.")
        elif isinstance(value, dict | list):
            for name, item in value.items() if isinstance(value, dict) else enumerate(value):
                if is_dataclass(item):
                    yield from nested_problems(item, f"{key}.{name}.")
                elif isinstance(item, dict | list) and get_args(hints[field.name])[-1] in (str, int, float):
                    yield Problem(f"{key}.{name}", item, "must be a single value, not a list or dictionary")
