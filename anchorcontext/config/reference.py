"""Writes `docs/config_reference.md`, every key of every command: `python -m anchorcontext.config.reference`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from anchorcontext.config.compose import read_unresolved
from anchorcontext.config.describe import Entry, Section, sections
from anchorcontext.config.folder import header_of
from anchorcontext.config.schema import SCHEMAS

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "config_reference.md"
_WIDTH = 120
_INTRODUCTION = """\
# Every key of every command

Made from the schema by `python -m anchorcontext.config.reference`: change the docstrings in
`anchorcontext/config/groups/` and `anchorcontext/config/schema/`, not this page. How a config is put together is in
[config.md](config.md); `anchorcontext COMMAND --help` shows the same for one command.

Each key is followed by its type, the values allowed, and its default. `${...}` stands for the value of another key.
"""


def reference() -> str:
    """The page: the keys of each command, then those of the sections that commands share."""
    shared: dict[str, dict[str, Section]] = {}
    parts = [_INTRODUCTION]
    for command in SCHEMAS:
        read = read_unresolved(command, [])
        assert read is not None
        found = sections(command, read[0])
        for section in found:
            shared.setdefault(section.name, {})[command] = section
        parts.append("\n".join(_command_lines(command, found)))
    del shared[""]
    parts += ["\n".join(_section_lines(name, by_command)) for name, by_command in shared.items()]
    return "\n".join(parts)


def _command_lines(command: str, found: list[Section]) -> Iterator[str]:
    yield f"## {command}\n"
    summary = header_of(command).partition(": ")[2]
    yield _filled(summary[0].upper() + summary[1:], "")
    if names := [section.name for section in found if section.name]:
        links = ", ".join(f"[{name}](#section-{name})" for name in names)
        yield _filled(f"Sections: {links}.", "")
    yield ""
    if notes := [_filled(f"- `{section.name}`: {section.note}", "  ") for section in found if section.note]:
        yield "\n".join([*notes, ""])
    for section in found:
        if not section.name:
            for entry in section.entries:
                yield _item(entry, entry.default)
            yield ""


def _section_lines(name: str, by_command: dict[str, Section]) -> Iterator[str]:
    """A section once, with defaults by command where they differ."""
    one = max(by_command.values(), key=lambda section: len(section.entries))
    yield f"## Section {name}\n"
    group = f"; a config group: `{name}=NAME`" if one.is_group else ""
    yield _filled(f"{one.meaning} Part of {', '.join(by_command)}{group}.", "")
    yield ""
    for entry in one.entries:
        defaults: dict[str, list[str]] = {}
        for command, section in by_command.items():
            for default in (other.default for other in section.entries if other.key == entry.key):
                defaults.setdefault(default, []).append(command)
        said = (f"{default} ({', '.join(commands)})" for default, commands in defaults.items())
        yield _item(entry, entry.default if len(defaults) == 1 else "; ".join(said))
    yield ""


def _item(entry: Entry, default: str) -> str:
    return _filled(f"- `{entry.key}` ({entry.takes}; {default}): {entry.meaning}", "  ")


def _filled(text: str, indent: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


if __name__ == "__main__":
    REFERENCE.write_text(reference(), encoding="utf-8")
    print(f"wrote {REFERENCE}")
