"""Every figure of the project, drawn in one style with matplotlib and without a display.

Functions take figures as numbers and return a `Figure`; `save` writes it.
"""

from anchorcontext.plots.mask import draw_mask
from anchorcontext.plots.packing import draw_document_lengths
from anchorcontext.plots.positions import draw_loss_by_position
from anchorcontext.plots.style import save, to_png
from anchorcontext.plots.training import draw_training

__all__ = [
    "draw_document_lengths",
    "draw_loss_by_position",
    "draw_mask",
    "draw_training",
    "save",
    "to_png",
]
