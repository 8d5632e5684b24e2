"""What lies in a pack index."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from anchorcontext.plots.style import INK, color_of, new_figure, styled, whole_numbers


@styled
def draw_document_lengths(lengths: Mapping[str, np.ndarray], window_tokens: int) -> Figure:
    """Documents, and the tokens in them, by document length: a bar for each doubling, sources stacked.

    Args:
        lengths: tokens of every document, by source.
        window_tokens: marked in the figure, for what lies right of it was cut.
    """
    known = [of_source for of_source in lengths.values() if len(of_source)]
    shortest = min((max(int(of_source.min()), 1) for of_source in known), default=1)
    longest = max((int(of_source.max()) for of_source in known), default=1)
    exponents = np.arange(shortest.bit_length() - 1, max(longest, window_tokens).bit_length() + 1)
    figure, panels = new_figure(8.0, 5.4, rows=2, sharex=True)
    for axes, weighted, label in zip(panels, (False, True), ("documents", "tokens (thousands)"), strict=True):
        below = np.zeros(len(exponents) - 1)
        for number, (source, of_source) in enumerate(lengths.items()):
            # Binned in log2: a document of 2**k tokens lies in the bar from 2**k to 2**(k+1).
            weights = of_source / 1e3 if weighted else None
            places = np.log2(np.maximum(of_source, 1))
            heights, _ = np.histogram(places, bins=exponents.astype(float), weights=weights)
            axes.bar(
                exponents[:-1], heights, bottom=below, width=0.92, align="edge", color=color_of(number), label=source
            )
            below = below + heights
        axes.axvline(np.log2(window_tokens), color=INK, linestyle="--", linewidth=1.2)
        axes.set_ylabel(label)
        whole_numbers(axes, "y")
    panels[0].set_title(f"Documents by length (dashed: the window of {window_tokens:,} rows)")
    panels[0].legend()
    shown = exponents[:: max(1, len(exponents) // 12)]
    panels[1].set_xticks(
        shown, [f"{2 ** int(exponent):,}" for exponent in shown], rotation=30, ha="right", rotation_mode="anchor"
    )
    panels[1].set_xlabel("length of the document (tokens)")
    return figure
