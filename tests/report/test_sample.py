"""What a sample says of the whole: scaled by what was read, and judged by what a mixture needs."""

from __future__ import annotations

from typing import Any

import pytest

from anchorcontext.console import figures_table, table_console
from anchorcontext.data.statistics import mixture_estimate
from anchorcontext.report.sample import is_sample, mixture_lines, mixture_table, sample_table, short, time_line


def _counts(fraction: float, available: int, target: int) -> dict[str, Any]:
    lengths = {"tokens_in": [0] * 11 + [300, 0, 0, 500, 0, 0, 0, 200]}
    share = {"weight": 0.5, "target_tokens": target, "available_tokens": available, "fraction": fraction}
    sample = {"fraction": fraction, "num_bytes": 10**9} if fraction < 1 else None
    return {
        "documents": 25,
        "sample": sample,
        "train": {"lengths": lengths, "share": share},
        "held_out": {"lengths": {"tokens_in": [10]}},
    }


@pytest.fixture
def account() -> dict[str, Any]:
    return {"books": _counts(0.01, 4_000_000, 10_000_000), "web": _counts(0.02, 90_000_000, 20_000_000)}


def test_whether_a_mixture_has_enough(account: dict[str, Any]) -> None:
    options: dict[str, Any] = {"total_tokens": None, "lengths": {"books": {"min_document_tokens": 65_536}}}
    assert mixture_estimate(account, options) == []  # without a total nothing is needed
    options["total_tokens"] = 2_000_000_000
    estimate = mixture_estimate(account, options)
    assert [(each["enough"], each["available_tokens"], each["needed_tokens"]) for each in estimate] == [
        (False, 400_000_000, 1_000_000_000),
        (True, 4_500_000_000, 1_000_000_000),
    ]
    assert list(mixture_lines(estimate)) == [
        "books: NOT ENOUGH: 0.4B of 1.0B needed in documents of at least 65,536 tokens",
        "web: enough: 4.5B of 1.0B needed",
    ]
    assert mixture_table(estimate).lines == [
        ["books", "NOT ENOUGH", "0.4B", "1.0B", "65,536"],
        ["web", "enough", "4.5B", "1.0B", "1"],
    ]


def test_no_estimate_of_what_was_read_whole(account: dict[str, Any]) -> None:
    options = {"total_tokens": 2_000_000_000}
    account["books"]["sample"] = None
    assert mixture_estimate(account, options)  # the web is still a sample
    account["web"]["sample"] = None
    assert mixture_estimate(account, options) == []


def test_a_source_without_a_weight_needs_nothing(account: dict[str, Any]) -> None:
    account["books"]["train"]["share"]["weight"] = 0.0
    assert [each["source"] for each in mixture_estimate(account, {"total_tokens": 10**9})] == ["web"]


def test_the_whole_corpus(account: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    table_console().print(figures_table(sample_table(account)))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    # 310 tokens below 4,096; 500 in documents of 16,384 to 65,535; 200 in longer ones
    assert ["books", "1.00%", "2,500", "101.0K", "31.0K", "0", "50.0K", "0", "20.0K"] in lines
    assert ["web", "2.00%", "1,250", "50.5K", "15.5K", "0", "25.0K", "0", "10.0K"] in lines


def test_a_long_name_leaves_room_for_its_figures(account: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    account["x" * 255] = account.pop("web")
    table_console().print(figures_table(sample_table(account)))
    assert "\u2026  " in (out := capsys.readouterr().out)
    assert "50.5K" in out


def test_the_time_for_all(account: dict[str, Any]) -> None:
    line = time_line(account, 3.0)
    assert line == (
        "tokenizing took 3.0 s for 1.50% of 2.00 GB in storage: at most about 3 min for all of it, with as many workers"
    )
    assert is_sample(account)
    account["web"]["sample"] = None
    assert is_sample(account)
    assert time_line(account, 3.0) is None


@pytest.mark.parametrize(
    ("tokens", "text"), [(0, "0"), (99, "99"), (400, "0.4K"), (1.5e6, "1.5M"), (4e8, "0.4B"), (2e12, "2,000.0B")]
)
def test_short(tokens: float, text: str) -> None:
    assert short(tokens) == text
