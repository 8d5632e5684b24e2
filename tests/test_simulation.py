"""A simulation reports what plans say, and writes it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from anchorcontext.commands.simulate import run
from anchorcontext.config.schema import AttentionConfig, ContextParallelConfig, SimulateConfig
from anchorcontext.context_parallel import CostModel, plan_context
from anchorcontext.context_parallel.figures import plan_figures
from anchorcontext.data.length_mixes import sample_window
from anchorcontext.layout import WindowLayout
from anchorcontext.simulation import simulate


def config(output: Path, **changes: object) -> SimulateConfig:
    options: dict[str, object] = {
        "attention": AttentionConfig(arm="anchor"),
        "mixes": ["web", "one_document"],
        "window_tokens": 3001,
        "windows": 2,
        "ranks": [1, 2, 7],
        "policies": ["auto", "zigzag"],
        "exchanges": ["gather", "ring", "ulysses", "ring_flash_attn"],
        "output": str(output),
    }
    return SimulateConfig(**{**options, **changes})  # type: ignore[arg-type]


def test_figures_are_those_of_the_plans() -> None:
    simulation = simulate(
        CostModel(),
        mixes=["web", "one_document"],
        window_tokens=3001,
        windows=2,
        ranks=[1, 2, 7],
        policies=["auto", "zigzag"],
        exchanges=["gather", "ring", "ulysses", "ring_flash_attn"],
    )
    simulated, refused = simulation.simulated, simulation.refused
    assert {(line.ranks, line.exchange) for line in refused} == {(2, "ring_flash_attn"), (7, "ring_flash_attn")}
    assert "3001 rows by 2" in refused[0].reason
    assert len(simulated) + len(refused) == 2 * 3 * (2 + 2 + 1 + 1)
    line = next(
        line
        for line in simulated
        if (line.mix, line.ranks, line.exchange, line.policy) == ("web", 7, "gather", "zigzag")
    )
    plans = [plan_context(WindowLayout(sample_window("web", 3001, seed)), 7, policy="zigzag") for seed in range(2)]
    assert line.windows == 2
    assert line.rows_moved == sum(plan.rows_received(rank) for plan in plans for rank in range(7)) / 2
    assert line.of_lower_bound == 1.0
    assert line.of_all_gather == pytest.approx(line.rows_moved / (6 * 3001))
    assert line.padding_rows == 7 * 429 - 3001
    work = [max(map(plan.work, range(7))) / (sum(map(plan.work, range(7))) / 7) for plan in plans]
    assert line.work_balance == pytest.approx(sum(work) / 2)


def test_one_rank_moves_nothing_and_is_ideal() -> None:
    plan = plan_context(WindowLayout([5, 6], num_rows=20), 1)
    figures = plan_figures(plan, CostModel(), used_rows=11)
    assert figures == {
        "rows_moved": 0,
        "of_lower_bound": None,
        "of_all_gather": 0.0,
        "rows_gathered": 0,
        "work_balance": 1.0,
        "padding_rows": 9,
        "time_of_ideal": pytest.approx(1.0),
    }


def test_what_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(config(tmp_path, context_parallel=ContextParallelConfig(max_gathered_rows=100)))
    printed = capsys.readouterr().out
    assert "web: 2 windows of 3,001 rows" in printed
    assert "no plan: one_document on 2, gather, auto: max_gathered_rows=100" in printed
    with (tmp_path / "simulation.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    record = json.loads((tmp_path / "simulation.json").read_text())
    assert [line["policy"] for line in lines] == [line["policy"] for line in record["results"]]
    assert record["max_gathered_rows"] == 100
    assert record["costs"]["query_heads"] == 32
    assert all(float(line["rows_gathered"]) <= 100 for line in lines)
    assert (tmp_path / "simulation.png").stat().st_size > 10_000
