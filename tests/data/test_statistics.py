"""The report of an index: the packer's account, and what layouts and plans add to it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from anchorcontext.config.schema import BalanceConfig
from anchorcontext.context_parallel import plan_context
from anchorcontext.data.statistics import context_balance, index_report, stored_report, used_shares, write_report
from anchorcontext.data.windows import PackedWindows
from tests.data_prep.corpus import make_index

TEXTS = {"long": ["abcdefghij" * 30], "short": [f"text {number}" * (number % 5 + 1) for number in range(60)]}
BALANCE = BalanceConfig(windows_per_step=2, context_ranks=[1, 3], sample_windows=4)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("statistics"), TEXTS, window_tokens=64, held_out_fraction=0.2)


def test_a_report_holds_the_account_and_json_alone(index: Path) -> None:
    report = index_report(index, BALANCE)
    assert json.loads(json.dumps(report)) == report
    manifest = PackedWindows(index).manifest
    assert report["sources"] == manifest["account"]
    for split in ("train", "held_out"):
        windows = PackedWindows(index, split)
        counts = report["splits"][split]
        assert counts["tokens"] == manifest["splits"][split]["tokens"]
        assert sum(counts["used"]) == len(windows)
        assert counts["work"]["total"] == windows.attention_work().sum()
        assert counts["rows"] == windows.used_rows().sum()
    assert list(report["splits"]["train"]["step_efficiency"]) == ["0", "4", "16", "64"]
    assert "step_efficiency" not in report["splits"]["held_out"]


def test_balance_is_that_of_the_plans(index: Path) -> None:
    windows = PackedWindows(index)
    one, three = context_balance(windows, [1, 3], len(windows), "anchor")
    assert (one["ranks"], one["work_balance"], one["of_all_gather"], one["time_of_ideal"]) == (1, 1.0, 0.0, 1.0)
    balances = []
    for number in range(len(windows)):
        pairs = plan_context(windows[number].layout("anchor"), 3).pairs_by_rank
        balances.append(pairs.max() / pairs.mean())
    assert three["work_balance"] == pytest.approx(np.mean(balances))
    assert three["worst_work_balance"] == pytest.approx(max(balances))
    assert context_balance(windows, [3], 2, "anchor")[0]["windows"] == 2


def test_windows_by_the_share_of_used_rows() -> None:
    assert used_shares(np.array([0, 49, 50, 89, 90, 99, 100, 100]), 100) == [2, 2, 1, 1, 0, 2]


def test_kept_beside_the_index_while_it_holds(tmp_path: Path) -> None:
    folder = make_index(tmp_path, TEXTS, window_tokens=64, held_out_fraction=0.0)
    assert stored_report(folder) is None
    report = write_report(folder, BALANCE)
    before = (folder / "report.json").read_bytes()
    assert stored_report(folder) == stored_report(folder, BALANCE) == report == write_report(folder, BALANCE)
    assert (folder / "report.json").read_bytes() == before
    other = BalanceConfig(windows_per_step=4)
    assert stored_report(folder, other) is None
    assert write_report(folder, other)["balance"]["windows_per_step"] == 4
    (folder / "report.json").write_text("{half")
    assert stored_report(folder) is None
    assert write_report(folder, BALANCE) == report


def test_an_empty_split_and_too_few_windows(tmp_path: Path) -> None:
    folder = make_index(tmp_path, ["text"], window_tokens=16, held_out_fraction=0.0)
    report = index_report(folder, BalanceConfig())
    assert report["splits"]["train"]["step_efficiency"] == {}
    assert "used" not in report["splits"]["held_out"]
