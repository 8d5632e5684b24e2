"""Group `rope`: rotary positions."""

from __future__ import annotations

from dataclasses import dataclass

from anchorcontext.config.rules import number, one_of


@dataclass
class RopeConfig:
    """Rotary position embeddings."""

    base: float | None = number(None, 1, open_low=True)
    """Rotary base (theta). Null keeps the model's own base and scaling."""
    compute: str = one_of(("float32", "bf16"), "float32")
    """`float32`: angles and rotation in float32, with q and k rounded once. `bf16`: as transformers does it."""
