"""The one error of data preparation: something that the user can fix."""

from __future__ import annotations


class DataError(ValueError):
    """Something is wrong with the data or its options; the message names it and how to fix it."""
