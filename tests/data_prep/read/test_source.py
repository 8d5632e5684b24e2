"""What a source may not say."""

from __future__ import annotations

from typing import Any

import pytest

from data_prep.errors import DataError
from data_prep.read import Source


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a\\b", "x" * 256, "\u00e9" * 128])
def test_a_name_must_be_able_to_name_a_folder(name: str) -> None:
    with pytest.raises(DataError, match="source name"):
        Source(name, "x")


def test_unknown_format() -> None:
    with pytest.raises(DataError, match=r"source a: format='pdf' is not one of auto, jsonl, json"):
        Source("a", "x", format="pdf")


def test_where_has_no_meaning_for_plain_text() -> None:
    with pytest.raises(DataError, match="where="):
        Source("a", "x", format="text", where={"lang": "en"})


def test_options_do_not_depend_on_the_order_of_where() -> None:
    first, second = (Source("a", "x", where=where).options() for where in ({"b": "1", "a": "2"}, {"a": "2", "b": "1"}))
    assert list(first["where"]) == list(second["where"])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"mask_field": "mask"}, r"mask_field='mask' is for records that come tokenized: set token_field"),
        ({"boundary_field": "ends"}, "boundary_field"),
        ({"token_field": "input_ids", "group_by": ("repo",)}, "group_by"),
        ({"format": "text", "group_by": ("repo",)}, "group_by"),
        ({"format": "megatron", "where": {"a": "b"}}, "where"),
        ({"subset": "en"}, "subset='en' is for a dataset of the hub"),
        ({"max_bad_fraction": 1.5}, "max_bad_fraction"),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], named: str) -> None:
    with pytest.raises(DataError, match=named):
        Source("a", "x", **options)


def test_options_of_a_store_are_those_that_decide_its_documents() -> None:
    plain = {"format": "auto", "pattern": "*", "text_field": "text", "where": {}}
    assert Source("a", "x", strict=True, max_bad_fraction=0, storage_options={"key": "secret"}).options() == plain
    grouped = Source("a", "x", group_by=("repo",), limit="1%").options()
    assert grouped == {**plain, "group_by": ["repo"], "limit": "1%"}
