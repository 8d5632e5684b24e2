"""How library functions tell their caller how far they are."""

from __future__ import annotations

from collections.abc import Callable

OnProgress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is: `("exporting train", 3, 10)`."""


def ignore(what: str, done: int, total: int) -> None:
    """Show nothing."""
