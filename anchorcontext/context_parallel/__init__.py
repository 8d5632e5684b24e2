"""Attention over windows that several ranks share: plan, exchange, compute."""

from anchorcontext.context_parallel.context import AttentionContext
from anchorcontext.context_parallel.costs import CostModel
from anchorcontext.context_parallel.exchanges import EXCHANGES
from anchorcontext.context_parallel.function import causal_attention, packed_attention
from anchorcontext.context_parallel.keep import keep_attention
from anchorcontext.context_parallel.plan import ContextPlan, plan_context
from anchorcontext.context_parallel.policies import POLICIES
from anchorcontext.context_parallel.rows import take_rows

__all__ = [
    "EXCHANGES",
    "POLICIES",
    "AttentionContext",
    "ContextPlan",
    "CostModel",
    "causal_attention",
    "keep_attention",
    "packed_attention",
    "plan_context",
    "take_rows",
]
