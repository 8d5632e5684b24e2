"""Figures by which plans are compared."""

from __future__ import annotations

from anchorcontext.context_parallel.costs import CostModel
from anchorcontext.context_parallel.plan import ContextPlan


def plan_figures(plan: ContextPlan, costs: CostModel, used_rows: int) -> dict[str, float | None]:
    """What a plan moves, and how evenly it spreads the work.

    Args:
        used_rows: rows of the window that are not padding.

    Returns:
        `rows_moved`: key and value rows that all ranks receive in a forward pass; `of_lower_bound`:
        over those that ranks need and do not hold, None where nothing must be moved;
        `of_all_gather`: over (ranks - 1) * window rows; `rows_gathered`: the most received rows that
        a rank holds at one time; `work_balance`: query-key pairs of the rank with most over the mean;
        `padding_rows`: rows that ranks compute for nothing, including the window's own padding;
        `time_of_ideal`: modelled time of an attention layer over that of its computing alone, equally
        shared.
    """
    moved, least = int(plan.rows_received_by_rank.sum()), int(plan.rows_missing_by_rank.sum())
    all_gather = (plan.ranks - 1) * plan.num_rows
    pairs = plan.pairs_by_rank
    ideal = float(costs.compute_seconds(pairs).mean())
    return {
        "rows_moved": moved,
        "of_lower_bound": moved / least if least else None,
        "of_all_gather": moved / all_gather if all_gather else 0.0,
        "rows_gathered": plan.rows_gathered,
        "work_balance": float(pairs.max() / pairs.mean()) if pairs.any() else 1.0,
        "padding_rows": plan.ranks * plan.rows_per_rank - used_rows,
        "time_of_ideal": plan.seconds(costs) / ideal if ideal else 1.0,
    }
