"""What `anchorcontext COMMAND --help` prints."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator

from omegaconf import DictConfig

from anchorcontext.config.describe import Section, sections
from anchorcontext.config.folder import group_files, groups_of, header_of

_WIDEST = 120


def help_text(command: str, config: DictConfig, width: int | None = None) -> str:
    """Usage, config groups and every key of `command`, wrapped to `width` columns (default: the terminal's).

    Args:
        command: a key of `SCHEMAS`.
        config: the config as composed, unresolved: the defaults that are shown.
        width: columns.
    """
    width = min(width or shutil.get_terminal_size((100, 24)).columns, _WIDEST)
    blocks = [textwrap.fill(header_of(command), width), _usage(command, width)]
    if groups := groups_of(command):
        lines = [_wrapped(f"{name}: ", ", ".join(group_files(name)), width) for name in groups]
        blocks.append("\n".join(["Config groups (group=NAME):", *lines]))
    blocks += ["\n".join(_lines(section, width)) for section in sections(command, config)]
    return "\n\n".join(blocks)


def _usage(command: str, width: int) -> str:
    groups = groups_of(command)
    if "experiment" in groups:
        third = ("experiment=NAME ...", "take a whole run from configs/experiment/NAME.yaml")
    elif groups:
        third = (f"{groups[0]}=NAME ...", f"take {groups[0]} from configs/{groups[0]}/NAME.yaml")
    else:
        third = ("'+DICTIONARY.NAME=VALUE' ...", "add an entry to a dictionary")
    uses = [
        ("KEY=VALUE ...", "set any of the keys below"),
        third,
        ("... --cfg job --resolve", "print the config as composed, and run nothing"),
    ]
    column = max(len(use) for use, _ in uses) + 2
    lines = (f"anchorcontext {command} {use:<{column}}{meaning}" for use, meaning in uses)
    return "\n".join(["Usage:", *(_wrapped("", line, width) for line in lines)])


def _lines(section: Section, width: int) -> Iterator[str]:
    name = section.name or "Keys of the command"
    title = f"{name} (config group)" if section.is_group else name
    yield textwrap.fill(" ".join(filter(None, (f"{title}:", section.meaning, section.note))), width)
    for entry in section.entries:
        yield _wrapped(f"{entry.key}  ", f"({entry.takes}; {entry.default})", width)
        if entry.meaning:
            yield textwrap.fill(entry.meaning, width, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _wrapped(head: str, text: str, width: int) -> str:
    """`head` and `text`, indented; continuation lines are indented further."""
    return textwrap.fill(
        f"{head}{text}",
        width,
        initial_indent="  ",
        subsequent_indent=" " * 6,
        break_on_hyphens=False,
        break_long_words=False,
    )
