"""The mask's shapes against the dense oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.path import Path as Polygon

from anchorcontext.layout import ARMS, WindowLayout
from anchorcontext.plots import draw_mask, to_png
from anchorcontext.plots.mask import document_rows, seen_shapes, segment_runs


def painted(layout: WindowLayout) -> np.ndarray:
    """Bool [rows, rows] (query, key) from the shapes, looking at a point of each cell near its lower left."""
    rows = layout.num_rows
    query, key = np.meshgrid(np.arange(rows) + 0.75, np.arange(rows) + 0.25, indexing="ij")
    points = np.stack([key.ravel(), query.ravel()], axis=1)
    seen = np.zeros(rows * rows, dtype=int)
    for shape in seen_shapes(segment_runs(layout.segment_ids.numpy())):
        seen += Polygon(shape).contains_points(points)
    assert seen.max(initial=0) <= 1, "shapes must not overlap"
    return seen.reshape(rows, rows).astype(bool)


@settings(max_examples=40, deadline=None)
@given(
    pieces=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), min_size=1, max_size=7),
    arm=st.sampled_from(ARMS),
    padding=st.integers(0, 4),
)
def test_shapes_equal_the_dense_mask(pieces: list[tuple[int, int]], arm: str, padding: int) -> None:
    lengths, documents = zip(*pieces, strict=True)
    layout = WindowLayout(lengths, document_ids=documents, arm=arm, num_rows=sum(lengths) + padding)
    np.testing.assert_array_equal(painted(layout), layout.dense_mask().numpy())


def test_documents_of_rows() -> None:
    layout = WindowLayout([2, 1, 3], document_ids=[7, 9, 7], num_rows=8)
    assert document_rows(layout).tolist() == [0, 0, 1, 0, 0, 0, -1, -1]


@pytest.mark.parametrize("arm", ARMS)
def test_a_long_window_is_drawn(arm: str) -> None:
    layout = WindowLayout([30_000, 1, 35_000], arm=arm, num_rows=65_536)
    figure = draw_mask(layout, ["books", "code", "books"], "title")
    mask, positions = figure.axes
    assert (mask.get_xlabel(), mask.get_ylabel(), positions.get_xlabel()) == (
        "key (row)",
        "query (row)",
        "rotary position",
    )
    labels = [text.get_text() for text in mask.get_legend().get_texts()]
    assert labels[:2] == ["books", "code"]
    assert ("other documents" in labels) == (arm == "full")
    assert ("anchor copies" in labels) == (arm == "anchor")
    assert "padding" in labels
    assert to_png(figure).startswith(b"\x89PNG")
