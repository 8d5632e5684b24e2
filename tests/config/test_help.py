"""`--help` shows every key with what it takes, its default and its meaning, and nothing that is not a key."""

import dataclasses
from typing import Any

import pytest

from anchorcontext.config import describe, schema
from anchorcontext.config.compose import compose, read_unresolved
from anchorcontext.config.fields import leaves
from anchorcontext.config.folder import group_files, groups_of
from anchorcontext.config.help import help_text
from anchorcontext.config.schema import SCHEMAS
from anchorcontext.errors import ConfigError

CLASSES = [kind for kind in vars(schema).values() if dataclasses.is_dataclass(kind)]


def composed(command: str, *arguments: str) -> Any:
    read = read_unresolved(command, arguments)
    assert read is not None
    return read[0]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert compose(arguments[0], arguments[1:]) is None
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_field_has_a_meaning(kind: Any) -> None:
    hints = describe.get_type_hints(kind)
    undescribed = [name for name, said in describe.meanings(kind).items() if not said]
    assert all(dataclasses.is_dataclass(hints[name]) for name in undescribed), undescribed
    assert describe.summary_of(kind)


@pytest.mark.parametrize("command", SCHEMAS)
def test_help_shows_every_key_once_and_every_group(command: str) -> None:
    lines = help_text(command, composed(command), width=100).splitlines()
    keys = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " " and "  (" in line]
    static = [key for key in keys if ".NAME." not in key]
    assert set(static) == {key for key, _ in leaves(SCHEMAS[command]())}
    assert len(keys) == len(set(keys))
    for group in groups_of(command):
        (line,) = [line for line in lines if line.startswith(f"  {group}: ")]
        assert group_files(group)[0] in line
    assert sum(line.startswith(f"  anchorcontext {command} ") for line in lines) == 3


def test_an_entry_shows_words_range_default_and_meaning() -> None:
    text = help_text("train", composed("train"), width=120)
    assert "  optim.schedule  (one of constant, linear, cosine; default: constant)\n" in text
    assert "  optim.lr  (number more than 0; default: 2e-05)\n      Peak learning rate.\n" in text  # of configs/optim
    assert "  training.steps  (whole number at least 1; must be given)\n" in text
    assert "  data.store  (text; optional)\n" in text
    assert "  data.tokenizer  (text; default: ${model.tokenizer})\n" in text  # of configs/train.yaml
    assert "  rope.base  (number more than 1, or null; default: null)\n" in text
    assert "data.sources.NAME.path" not in text  # only pack reads sources
    assert "data.sources.NAME.path  (text; must be given)" in help_text("pack", composed("pack"), width=120)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_is_wrapped(width: int) -> None:
    assert max(map(len, help_text("train", composed("train"), width).splitlines())) <= width


def test_help_shows_the_values_that_overrides_would_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert "default: 1e+07" not in printed(capsys, "train", "--help")
    assert "default: 1e+07" in printed(capsys, "train", "rope=128k", "-h")
    with pytest.raises(ConfigError, match="did you mean optim"):
        compose("train", ["--help", "lr=1"])
