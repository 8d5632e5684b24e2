"""Figures draw what they are given, with units on their axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anchorcontext.plots import (
    PositionLoss,
    draw_document_lengths,
    draw_loss_by_position,
    draw_training,
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


def test_document_lengths_fall_into_the_right_bars() -> None:
    lengths = {"a": np.array([1, 2, 3, 4, 7, 8]), "b": np.array([], dtype=np.int64)}
    figure = draw_document_lengths(lengths, 16)
    documents, tokens = figure.axes
    bars = [patch for patch in documents.patches if patch.get_height()]
    assert [(bar.get_x(), bar.get_height()) for bar in bars] == [(0, 1), (1, 2), (2, 2), (3, 1)]
    heights = [patch.get_height() for patch in tokens.patches if patch.get_height()]
    np.testing.assert_allclose(heights, [0.001, 0.005, 0.011, 0.008])
    assert to_png(figure).startswith(b"\x89PNG")


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_saving_makes_the_folder(tmp_path: Path, suffix: str) -> None:
    save(draw_loss_by_position(MODELS, "title"), tmp_path / "new" / f"figure{suffix}")
    assert (tmp_path / "new" / f"figure{suffix}").stat().st_size > 1000
