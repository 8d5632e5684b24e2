"""How evenly the data-parallel ranks of a step are loaded, for an order of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anchorcontext.data.order import WindowOrder

BALANCE_STEPS = (0, 4, 16, 64)
"""The values of `order.balance_steps` that are compared."""


@dataclass(frozen=True)
class StepShape:
    """How a step is distributed, and what a row costs.

    Attributes:
        windows_per_step: windows of a step.
        data_ranks: ranks, or groups that share windows, among which they are divided equally.
        row_pairs: what everything but attention costs per row, in query-key pairs; about six times a
            Llama's width, so 25,000 for 7B and 8B.
    """

    windows_per_step: int
    data_ranks: int
    row_pairs: int


def window_costs(work: np.ndarray, window_rows: int, row_pairs: int) -> np.ndarray:
    """What each window costs in query-key pairs, float64 [windows]: half its attention work, and its rows."""
    return work / 2 + float(window_rows) * row_pairs


def step_efficiency(costs: np.ndarray, windows: np.ndarray, shape: StepShape) -> float:
    """Time that ranks compute over the time of the steps, 0 to 1: the rank with most decides a step's.

    Args:
        costs: of every window, by its number.
        windows: numbers of the windows in their order, whole steps.
        shape: a rank takes its windows as neighbours, as training does.
    """
    per_rank = costs[windows].reshape(-1, shape.data_ranks, shape.windows_per_step // shape.data_ranks).sum(axis=2)
    return float(per_rank.mean(axis=1).sum() / per_rank.max(axis=1).sum())


def efficiencies(
    index_hash: str,
    work: np.ndarray,
    window_rows: int,
    shape: StepShape,
    balance_steps: Sequence[int] = BALANCE_STEPS,
    seed: int = 0,
) -> dict[int, float]:
    """Step efficiency of the first epoch by `order.balance_steps`; empty where windows fill no step.

    The steps are those of a run with this seed. Windows left over after the last whole step are not counted.
    """
    steps = len(work) // shape.windows_per_step
    if not steps:
        return {}
    costs = window_costs(work, window_rows, shape.row_pairs)
    found = {}
    for count in balance_steps:
        order = WindowOrder(
            index_hash,
            seed,
            len(work),
            balance_steps=count,
            windows_per_step=shape.windows_per_step,
            work=lambda windows: work[windows],
        )
        found[count] = step_efficiency(costs, order.windows(0, steps * shape.windows_per_step), shape)
    return found
