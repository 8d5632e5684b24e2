"""Context plans as a config asks for them."""

from __future__ import annotations

import math
from typing import Any

from anchorcontext.config.schema import ContextParallelConfig
from anchorcontext.context_parallel import ContextPlan, CostModel, plan_context
from anchorcontext.errors import ConfigError, Problem
from anchorcontext.layout import WindowLayout

_HEAD_GROUPS = 4  # as the executor's, where the config leaves them open


def cost_model(options: ContextParallelConfig, model: Any = None, bytes_per_element: int = 2) -> CostModel:
    """The costs that planning assumes.

    Args:
        options: speeds, and the shapes that are given.
        model: a transformers config, for shapes that are not. None: Llama-3-8B's.
        bytes_per_element: of keys and values, where not given.

    Raises:
        ConfigError: head groups that do not divide the key heads.
    """
    costs, usual = options.costs, CostModel()
    query_heads = costs.query_heads or int(getattr(model, "num_attention_heads", usual.query_heads))
    key_heads = costs.key_heads or getattr(model, "num_key_value_heads", None)
    head_dim = costs.head_dim or getattr(model, "head_dim", None)
    if model is not None:
        key_heads = key_heads or query_heads
        head_dim = head_dim or model.hidden_size // query_heads
    key_heads = key_heads or usual.key_heads
    if options.head_groups is not None and key_heads % options.head_groups:
        fits = ", ".join(str(count) for count in range(1, key_heads + 1) if key_heads % count == 0)
        fix = f"must divide the {key_heads} key heads: choose {fits}"
        raise ConfigError.of("context_parallel.head_groups", options.head_groups, fix)
    return CostModel(
        query_heads=query_heads,
        key_heads=key_heads,
        head_dim=head_dim or usual.head_dim,
        bytes_per_element=costs.bytes_per_element or bytes_per_element,
        flops_per_second=costs.flops_per_second,
        bytes_per_second=costs.bytes_per_second,
        head_groups=options.head_groups or math.gcd(_HEAD_GROUPS, key_heads),
    )


def check_sharing(options: ContextParallelConfig, model: Any, rows: int) -> None:
    """Whether ranks can share this model's heads, and windows of that many rows, by the exchange.

    Args:
        model: a transformers config.
        rows: number of rows planned at once: those of a micro-batch.

    Raises:
        ConfigError: all that does not divide.
    """
    size, heads, problems = options.size, getattr(model, "num_attention_heads", options.size), []
    if options.exchange == "ulysses" and heads % size:
        fits = ", ".join(str(count) for count in range(1, heads + 1) if heads % count == 0)
        fix = f"ulysses shares the model's {heads} query heads: choose {fits} ranks, or exchange gather"
        problems.append(Problem("context_parallel.size", size, fix))
    if options.exchange == "ulysses" and options.head_groups not in (None, 1):
        fix = "ulysses moves heads, not groups of them: leave it out"
        problems.append(Problem("context_parallel.head_groups", options.head_groups, fix))
    if options.exchange == "ring_flash_attn" and rows % size:
        fix = f"ring_flash_attn needs rows that divide by it, not {rows:,}: choose gather, ring or ulysses"
        problems.append(Problem("context_parallel.size", size, fix))
    if problems:
        raise ConfigError(problems)


def plan_window(layout: WindowLayout, options: ContextParallelConfig, costs: CostModel) -> ContextPlan:
    """The plan of a window, or of several concatenated ones, for the ranks that share it.

    Raises:
        ConfigError: a window that cannot be shared so, as under a cap of gathered rows.
    """
    try:
        return plan_context(
            layout,
            options.size,
            exchange=options.exchange,
            policy=options.policy,
            costs=costs,
            max_gathered_rows=options.max_gathered_rows,
        )
    except ValueError as error:
        raise ConfigError.of("context_parallel.size", options.size, str(error)) from error
