"""The one error of data preparation that is the user's to mend."""

from __future__ import annotations


class DataError(ValueError):
    """Something is wrong with the data or its options; the message names it and the way out."""
