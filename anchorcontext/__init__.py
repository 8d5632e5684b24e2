"""AnchorContext: long-context continual pretraining with AnchorAttention.

The names below are the public API. Each is imported when it is first used, so that `import
anchorcontext` (and with it `--help` of every command) does not wait for torch or transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorcontext.context_parallel import (
        AttentionContext,
        ContextPlan,
        CostModel,
        packed_attention,
        plan_context,
    )
    from anchorcontext.data.collator import AnchorCollator
    from anchorcontext.layout import WindowLayout
    from anchorcontext.models.attention_interface import register

__version__ = "0.1.0"

_MODULE_OF = {
    "AnchorCollator": "anchorcontext.data.collator",
    "AttentionContext": "anchorcontext.context_parallel",
    "ContextPlan": "anchorcontext.context_parallel",
    "CostModel": "anchorcontext.context_parallel",
    "WindowLayout": "anchorcontext.layout",
    "packed_attention": "anchorcontext.context_parallel",
    "plan_context": "anchorcontext.context_parallel",
    "register": "anchorcontext.models.attention_interface",
}

__all__ = [
    "AnchorCollator",
    "AttentionContext",
    "ContextPlan",
    "CostModel",
    "WindowLayout",
    "packed_attention",
    "plan_context",
    "register",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'anchorcontext' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
