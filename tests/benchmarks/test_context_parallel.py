"""The benchmark itself, in a window of 96 tokens: it measures every method, and counts what it should."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from anchorcontext import WindowLayout, plan_context
from anchorcontext.data.length_mixes import sample_window
from benchmarks import context_parallel as benchmark
from benchmarks.environment import machine
from benchmarks.methods import ONE_RANK, PEERS
from tests.context_parallel.flash_stand_in import flash_attn_stand_in
from tests.workers import run_on

SIZES = ["--ranks=2", "--window-tokens=96", "--error-tokens=64", "--head-dim=16", "--repeats=1"]
SPEEDS = ["--flops-per-second=30e9", "--bytes-per-second=1e9"]


def measured(arguments: list[str]) -> dict[str, Any]:
    import deepspeed.sequence.layer  # noqa: F401  # before the stand-in, which it would take for the real flash-attn

    with flash_attn_stand_in():
        return benchmark.measurements(benchmark.parser().parse_args(arguments), torch.device("cpu"))


def test_every_method_is_measured_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_rank = run_on(2, measured, [*SIZES, *SPEEDS])
    assert by_rank[0]["names"] == by_rank[1]["names"]
    refused = by_rank[0]["refused"]
    assert refused == {}
    lines = benchmark.summarize([rank["results"] for rank in by_rank], by_rank[0]["names"], ranks=2)
    by_name = {name: line for line in lines for name in line["method"].split(" = ")}
    assert {ONE_RANK, *PEERS} < set(by_name)
    for line in lines:
        assert line["seconds"] > 0
        assert 0 < line["error"] < 0.02
    for policy in ("contiguous", "chunks", "hybrid", "zigzag"):  # a row of 2 key heads, BF16, out, out again, and back
        plan = plan_context(WindowLayout(sample_window("web", 96, 0)), 2, policy=policy)
        rows = plan.rows_received(0) + plan.rows_received(1)
        assert by_name[f"gather {policy}"]["mib_sent"] * 2**20 == pytest.approx(3 * rows * 2 * 2 * 16 * 2)
    assert by_name["gather auto"]["mib_sent"] < by_name["ring-flash-attn llama3"]["mib_sent"]

    benchmark.write(tmp_path, lines, refused, {"ranks": 2}, machine(benchmark.PACKAGES))
    with (tmp_path / "results.csv").open(encoding="utf-8") as file:
        assert [row["method"] for row in csv.DictReader(file)] == [line["method"] for line in lines]
    record = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert record["machine"]["versions"]["ring-flash-attn"]
    assert (tmp_path / "results.png").stat().st_size > 0
    benchmark.show(lines, {"torus": "no such thing"})
    printed = capsys.readouterr().out
    assert "ring-flash-attn zigzag" in printed
    assert "left out: torus: no such thing" in printed


def test_shares_are_of_one_ranks_time() -> None:
    """By hand: 8 seconds on one rank make 4 on two; the slower rank of the method takes 5."""
    figures = {"median_seconds": 10.0, "mib_sent": 1.0, "peak_mib": 2.0, "error": 0.1}
    by_rank = [
        [{"seconds": 8.0, "thread_seconds": 8.0, **figures}, {"seconds": seconds, "thread_seconds": 4.0, **figures}]
        for seconds in (5.0, 3.0)
    ]
    one, two = benchmark.summarize(by_rank, [[ONE_RANK, ""], ["gather zigzag", ""]], ranks=2)
    assert (one["seconds"], one["share"]) == (8.0, None)
    assert (two["seconds"], two["share"], two["thread_share"], two["mib_sent"]) == (5.0, 0.8, 1.0, 2.0)
    assert two["spread"] == pytest.approx(10 / 3 - 1)


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark.main([*SIZES, f"--output={tmp_path}"])
    printed = capsys.readouterr().out
    assert "left out: ring_flash_attn contiguous: exchange='ring_flash_attn' runs flash-attn" in printed
    assert (tmp_path / "results.csv").is_file()
