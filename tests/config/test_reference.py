"""The committed reference of all keys is the one that the schema gives."""

from anchorcontext.config.fields import leaves
from anchorcontext.config.reference import REFERENCE, reference
from anchorcontext.config.schema import SCHEMAS


def test_the_reference_is_up_to_date() -> None:
    said = "docs/config_reference.md is out of date: run `python -m anchorcontext.config.reference`"
    assert REFERENCE.read_text(encoding="utf-8") == reference(), said


def test_the_reference_has_every_key_of_every_command() -> None:
    text = reference()
    for command, schema in SCHEMAS.items():
        assert f"## {command}\n" in text
        assert all(f"- `{key}` (" in text for key, _ in leaves(schema()))
