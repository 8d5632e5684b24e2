"""How much of which source, and of which lengths: knows tokens and sources, nothing of windows."""

from data_prep.mix.lengths import LengthRule, keep_short
from data_prep.mix.mixture import EXHAUSTED, Share, shares_of, take_tokens

__all__ = ["EXHAUSTED", "LengthRule", "Share", "keep_short", "shares_of", "take_tokens"]
