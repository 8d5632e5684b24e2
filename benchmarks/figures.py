"""A measured figure and its target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured value.

    Attributes:
        name: what was measured, and on what.
        value: in `unit`.
        unit: of the value and its bounds; `%` shows a fraction as a percentage.
        at_least, at_most: the target; both None: measured for comparison only.
    """

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def reached(self) -> bool | None:
        """None without a target."""
        if self.at_least is None and self.at_most is None:
            return None
        above = self.at_least is None or self.value >= self.at_least
        return above and (self.at_most is None or self.value <= self.at_most)

    @property
    def shown(self) -> str:
        return self._text(self.value)

    @property
    def target_shown(self) -> str:
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return ", ".join(f"{word} {self._text(bound)}" for word, bound in bounds if bound is not None)

    def _text(self, value: float) -> str:
        return f"{value:.4%}" if self.unit == "%" else f"{value:,.4g} {self.unit}".strip()
