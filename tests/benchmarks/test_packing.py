"""The benchmark of packing, on few documents: it measures what it says, and judges by the targets."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import pack_index, packing
from benchmarks.figures import Figure


def test_the_index_in_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"WEB_DOCUMENTS": 3000, "BOOKS": 30, "REPOSITORIES": 50, "MIXTURE_TOKENS": 1_000_000}.items():
        monkeypatch.setattr(pack_index, name, value)
    monkeypatch.setattr(sys, "argv", ["packing", "--parts", "index", "--output", str(tmp_path)])
    packing.main()
    rows = {row["name"]: row for row in json.loads((tmp_path / "results.json").read_text())["results"]}
    for begin in ("golden", "documents cut that would have fitted", "mixture"):
        assert next(row for name, row in rows.items() if name.startswith(begin))["reached"]
    text = capsys.readouterr().out
    assert all(name in text for name in rows)


@pytest.mark.parametrize(
    ("value", "low", "high", "reached"),
    [(1, None, None, None), (1, 1, None, True), (0.9, 1, None, False), (1.1, None, 1, False), (0.5, 0, 1, True)],
)
def test_a_target_is_reached_or_not(value: float, low: float | None, high: float | None, reached: bool | None) -> None:
    assert Figure("any", value, "s", low, high).reached is reached


def test_figures_as_text() -> None:
    assert Figure("any", 0.999951, "%", at_least=0.9999).shown == "99.9951%"
    assert Figure("any", 1.5, "us", 1, 5).target_shown == "at least 1 us, at most 5 us"
