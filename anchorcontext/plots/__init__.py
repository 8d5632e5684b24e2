"""Every figure of the project, drawn in one style with matplotlib and without a display.

Functions take figures as numbers and return a `Figure`; `save` writes it.
"""

from anchorcontext.plots.mask import draw_mask
from anchorcontext.plots.packing import (
    draw_balance,
    draw_distances,
    draw_lengths,
    draw_sources,
    draw_used,
    draw_work,
)
from anchorcontext.plots.positions import PositionLoss, draw_loss_by_position, read_positions, write_positions
from anchorcontext.plots.simulation import draw_simulation
from anchorcontext.plots.style import save, to_png
from anchorcontext.plots.training import draw_training

__all__ = [
    "PositionLoss",
    "draw_balance",
    "draw_distances",
    "draw_lengths",
    "draw_loss_by_position",
    "draw_mask",
    "draw_simulation",
    "draw_sources",
    "draw_training",
    "draw_used",
    "draw_work",
    "read_positions",
    "save",
    "to_png",
    "write_positions",
]
