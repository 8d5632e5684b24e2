"""Rotary positions: parameters set before a model is built, frequencies proven after."""

from anchorcontext.rope.parameters import FIXED_TYPES, inverse_frequencies, set_rope
from anchorcontext.rope.rotary import FixedRotary, check_frequencies, frequency_digest, replace_rotary

__all__ = [
    "FIXED_TYPES",
    "FixedRotary",
    "check_frequencies",
    "frequency_digest",
    "inverse_frequencies",
    "replace_rotary",
    "set_rope",
]
