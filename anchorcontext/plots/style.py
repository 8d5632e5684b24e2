"""The look that all figures share, and how they become files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

Arguments = ParamSpec("Arguments")

SERIES = ("#3366a8", "#d1603d", "#3d8f6d", "#8a5a9e", "#b8902e", "#4f9fb5", "#a34a63", "#6b6b6b")
"""Colours of models, runs and sources, in the order in which they are given."""
ANCHOR = "#c2185b"
"""Anchor rows and the keys they are."""
MUTED = "#c9ccd1"
"""What is there, but is not the subject."""
INK = "#24292f"

_DPI = 150
_LONGEST_NAME = 32
_STYLE: Any = {
    "axes.edgecolor": "#8b929a",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "figure.facecolor": "white",
    "font.size": 9.5,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Decorates a function that draws a figure: everything it makes has the common look."""

    @wraps(draw)
    def draw_in_style(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        with matplotlib.rc_context(_STYLE):
            return draw(*args, **kwargs)

    return draw_in_style


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure of `width` x `height` inches and its axes, as `Figure.subplots` returns them."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def color_of(number: int) -> str:
    """The colour of series `number`; they repeat after the last."""
    return SERIES[number % len(SERIES)]


def whole_numbers(axes: Axes, *names: str) -> None:
    """Write the ticks of these axes (`x`, `y`) as 4,096 and not as 4096.0."""
    for name in names:
        axis = axes.xaxis if name == "x" else axes.yaxis
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def plain(name: str) -> str:
    """A name as it is, but for its middle where it is long: matplotlib takes $ for formulas and hides a _ in front."""
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME // 2 - 1]}\u2026{name[-_LONGEST_NAME // 2 :]}"
    return f"{' ' * name.startswith('_')}{name}".replace("$", r"\$")


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure; the name's suffix says the format (.png, .svg, .pdf)."""
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(figure, path)


def to_png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    _write(figure, buffer, format="png")
    return buffer.getvalue()


def _write(figure: Figure, target: Path | io.BytesIO, **options: Any) -> None:
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")  # a box in the figure says it too
        figure.savefig(target, dpi=_DPI, **options)
