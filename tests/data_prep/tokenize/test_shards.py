"""Units of work: which files share a shard, and what a shard holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_prep.read import InputFile
from data_prep.tokenize.shards import plan_units


def _files(sizes: list[int]) -> list[InputFile]:
    return [InputFile(number, f"{number}", f"{number}", "text", size, 0) for number, size in enumerate(sizes)]


@given(st.lists(st.integers(0, 30), min_size=1), st.integers(1, 20))
def test_units_hold_every_file_once_in_order_and_no_more_than_asked(sizes: list[int], unit_bytes: int) -> None:
    units = plan_units(_files(sizes), unit_bytes=unit_bytes)
    assert [file.number for unit in units for file in unit.files] == list(range(len(sizes)))
    assert [unit.number for unit in units] == list(range(len(units)))
    for unit in units:
        assert unit.num_bytes <= unit_bytes or max(file.num_bytes for file in unit.files) > unit_bytes


def test_small_files_share_a_unit_and_a_large_one_has_its_own() -> None:
    units = plan_units(_files([4, 5, 2, 30, 1, 1]), unit_bytes=10)
    assert [[file.num_bytes for file in unit.files] for unit in units] == [[4, 5], [2], [30], [1, 1]]


def test_many_tiny_files_are_several_units() -> None:
    units = plan_units(_files([3] * 2500))
    assert [len(unit.files) for unit in units] == [1000, 1000, 500]
    assert len(plan_units(_files([3] * 1000))) == 1
