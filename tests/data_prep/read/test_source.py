"""What a source may not say."""

from __future__ import annotations

import pytest

from data_prep.errors import DataError
from data_prep.read import Source


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a\\b"])
def test_a_name_must_be_able_to_name_a_folder(name: str) -> None:
    with pytest.raises(DataError, match="source name"):
        Source(name, "x")


def test_unknown_format() -> None:
    with pytest.raises(DataError, match=r"source a: format='pdf' is not one of auto, jsonl, text"):
        Source("a", "x", format="pdf")


def test_where_has_no_meaning_for_plain_text() -> None:
    with pytest.raises(DataError, match="where="):
        Source("a", "x", format="text", where={"lang": "en"})


def test_options_do_not_depend_on_the_order_of_where() -> None:
    first, second = (Source("a", "x", where=where).options() for where in ({"b": "1", "a": "2"}, {"a": "2", "b": "1"}))
    assert list(first["where"]) == list(second["where"])
