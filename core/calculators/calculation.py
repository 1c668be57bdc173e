"""What a calculator gives: a bound, the formula and theorem it comes from, and what it bounds, beside it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Beside", "Calculation"]


@dataclass(frozen=True)
class Beside:
    """A number to compare with: exact, simulated, or by another theorem."""

    what: str
    value: float


@dataclass(frozen=True)
class Calculation:
    """One bound. ``exact`` is what it bounds: never above it, up to the confidence that was asked for."""

    what: str
    bound: float
    formula: str
    theorem: str
    exact: Beside
    others: tuple[Beside, ...] = ()

    def rows(self) -> list[dict[str, object]]:
        """For tables: the bound first, then what stands beside it."""
        first = {"what": self.what, "value": self.bound, "from": f"{self.formula}  ({self.theorem})"}
        return [
            first,
            *({"what": one.what, "value": one.value, "from": ""} for one in (self.exact, *self.others)),
        ]
