from __future__ import annotations

import pytest
from transformers import LlamaConfig

from anchorcontext import CostModel, WindowLayout
from anchorcontext.config.schema import ContextParallelConfig, CostsConfig
from anchorcontext.errors import ConfigError
from anchorcontext.models.planning import check_sharing, cost_model, plan_window

MODEL = LlamaConfig(hidden_size=96, num_attention_heads=6, num_key_value_heads=3)


def test_shapes_are_the_models_where_not_given() -> None:
    costs = cost_model(ContextParallelConfig(), MODEL, bytes_per_element=4)
    assert costs == CostModel(query_heads=6, key_heads=3, head_dim=16, bytes_per_element=4, head_groups=1)
    given = CostsConfig(flops_per_second=1e9, bytes_per_second=1e6, key_heads=6, head_dim=8, bytes_per_element=1)
    costs = cost_model(ContextParallelConfig(head_groups=3, costs=given), MODEL)
    assert costs == CostModel(6, 6, 8, 1, flops_per_second=1e9, bytes_per_second=1e6, head_groups=3)
    assert cost_model(ContextParallelConfig()) == CostModel()


def test_head_groups_divide_the_key_heads() -> None:
    with pytest.raises(ConfigError, match="head_groups=2: must divide the 3 key heads: choose 1, 3"):
        cost_model(ContextParallelConfig(head_groups=2), MODEL)


@pytest.mark.parametrize(
    ("exchange", "size", "head_groups", "refused"),
    [
        ("ulysses", 3, None, []),
        ("ulysses", 4, 3, ["context_parallel.size", "context_parallel.head_groups"]),
        ("ring_flash_attn", 5, None, []),
        ("ring_flash_attn", 3, None, ["context_parallel.size"]),
        ("gather", 4, 3, []),
        ("ring", 7, None, []),
    ],
)
def test_what_an_exchange_cannot_share_is_named_before_a_step(
    exchange: str, size: int, head_groups: int | None, refused: list[str]
) -> None:
    options = ContextParallelConfig(size=size, exchange=exchange, head_groups=head_groups)
    found: list[str] = []
    try:
        check_sharing(options, MODEL, rows=100)
    except ConfigError as error:
        found = [problem.key for problem in error.problems]
    assert found == refused


def test_a_plan_is_as_the_config_says() -> None:
    options = ContextParallelConfig(size=3, exchange="ring", policy="zigzag")
    plan = plan_window(WindowLayout([40, 7]), options, CostModel())
    assert (plan.ranks, plan.exchange, plan.policy) == (3, "ring", "zigzag")
    with pytest.raises(ConfigError, match="max_gathered_rows=1"):
        plan_window(WindowLayout([40]), ContextParallelConfig(size=2, max_gathered_rows=1), CostModel())
