"""Figures draw what they are given, with units on their axes."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from anchorcontext.plots import (
    PositionLoss,
    draw_balance,
    draw_distances,
    draw_lengths,
    draw_loss_by_position,
    draw_sources,
    draw_training,
    draw_used,
    draw_work,
    read_positions,
    save,
    to_png,
    write_positions,
)
from anchorcontext.plots.training import smooth

MODELS = {
    "base": [PositionLoss(0, 64, 600, 2.5, 0.25), PositionLoss(64, 100, 40, 3.0, None)],
    "odd, name": [PositionLoss(0, 64, 600, 2.0, 0.5)],
}


def test_positions_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    write_positions(tmp_path / "table.csv", MODELS)
    assert read_positions(tmp_path / "table.csv") == MODELS
    lines = (tmp_path / "table.csv").read_text().splitlines()
    assert lines[0] == "model,low,high,tokens,loss,perplexity,standard_error"
    assert lines[2] == "base,64,100,40,3.0,20.085536923187668,"


def test_another_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("model,loss\nbase,1\n")
    with pytest.raises(ValueError, match="is no table of losses by position"):
        read_positions(tmp_path / "table.csv")


def test_loss_by_position() -> None:
    figure = draw_loss_by_position(MODELS, "title")
    (axes,) = figure.axes
    assert axes.get_ylabel() == "loss (nats a token)"
    assert axes.get_xlabel() == "position in the window (rows)"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0\nto 63", "64\nto 99"]
    assert [line.get_ydata().tolist() for line in axes.lines if line.get_marker() == "o"] == [[2.5, 3.0], [2.0]]
    assert to_png(figure).startswith(b"\x89PNG")


def test_training_skips_what_was_not_measured() -> None:
    steps = [
        {"tokens": 1_000_000 * step, "loss": 5.0 - step, "grad_norm": None, "learning_rate": 0.1} for step in (1, 2, 3)
    ]
    figure = draw_training({"run": steps})
    loss, norm, rate = figure.axes
    assert loss.lines[0].get_xdata().tolist() == [1.0, 2.0, 3.0]
    assert len(norm.lines[0].get_xdata()) == 0
    assert rate.get_xlabel() == "tokens seen in the run (millions)"
    assert to_png(figure).startswith(b"\x89PNG")


def test_smoothing() -> None:
    assert smooth([]) == []
    assert smooth([3.0, 1.0]) == [3.0, 1.0]
    values = [float(value) for value in range(40)]
    assert smooth(values)[20] == 20.0
    assert smooth(values)[0] == 1.0  # of the values 0, 1 and 2
    assert smooth([2.0] * 100) == [2.0] * 100


def test_lengths_fall_into_the_right_bars() -> None:
    histograms = {
        "documents_in": [1, 2, 0, 4],
        "tokens_in": [1000, 5000, 0, 40_000],
        "pieces": [0, 3],
        "tokens": [0, 9000],
    }
    figure = draw_lengths({"a": histograms, "b": {key: [0] for key in histograms}}, 16)
    documents, tokens, pieces, packed = figure.axes
    bars = [(bar.get_x(), bar.get_height()) for bar in documents.patches if bar.get_height()]
    assert bars == [(0, 1), (1, 2), (3, 4)]
    assert [bar.get_height() for bar in tokens.patches if bar.get_height()] == [1, 5, 40]
    assert [(bar.get_x(), bar.get_height()) for bar in pieces.patches if bar.get_height()] == [(1, 3)]
    assert [bar.get_height() for bar in packed.patches if bar.get_height()] == [9]
    assert documents.lines[0].get_xdata()[0] == 4  # the window
    assert to_png(figure).startswith(b"\x89PNG")


def test_odd_names_of_sources() -> None:
    histograms = {key: [1] for key in ("documents_in", "tokens_in", "pieces", "tokens")}
    names = ["_lead", "a $x$", "x" * 200]
    figure = draw_lengths(dict.fromkeys(names, histograms), 16)
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == [" _lead", r"a \$x\$", "x" * 15 + "\u2026" + "x" * 16]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as for axes without any room left
        to_png(draw_sources(dict.fromkeys(names, 1), {}))


def test_sources_against_what_the_mixture_wanted() -> None:
    figure = draw_sources({"a": 3_000_000, "b": 1_000_000}, {"a": 2_000_000, "b": 2_000_000})
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [3, 1]
    assert [list(line.get_xdata()) for line in axes.lines] == [[2.0, 2.0], [2.0, 2.0]]
    assert [text.get_text() for text in axes.texts] == ["75.0%", "25.0%"]
    assert "wanted" not in draw_sources({"a": 0}, {}).axes[0].get_title(loc="left")


def test_balance_among_ranks() -> None:
    sharing = [{"ranks": 2, "time_of_ideal": 1.2, "work_balance": 1.0, "worst_work_balance": 1.1}]
    left, right = draw_balance(sharing, {"0": 0.5, "16": 0.9}).axes
    assert sorted(line.get_ydata()[0] for line in left.lines) == [1.0, 1.1, 1.2]
    assert [bar.get_height() for bar in right.patches] == [0.5, 0.9]
    assert to_png(draw_balance([], {})).startswith(b"\x89PNG")


def test_distances_density_and_work() -> None:
    axes = draw_distances([0, 1, 2, 7], [10, 8, 6, 0], num_windows=2, window_tokens=8).axes[0]
    one_document, index = axes.lines
    assert one_document.get_ydata().tolist() == [14, 12]  # the last distance is left out
    assert list(index.get_ydata()) == [8, 6]
    assert [bar.get_height() for bar in draw_used([1, 2, 3], [0, 0.5, 1]).axes[0].patches] == [1, 2, 3]
    assert [bar.get_x() for bar in draw_work([1, 0, 0, 3]).axes[0].patches] == [0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_saving_makes_the_folder(tmp_path: Path, suffix: str) -> None:
    save(draw_loss_by_position(MODELS, "title"), tmp_path / "new" / f"figure{suffix}")
    assert (tmp_path / "new" / f"figure{suffix}").stat().st_size > 1000
