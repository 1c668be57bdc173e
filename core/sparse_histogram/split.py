"""How ε is divided among the parts of a release, and among metrics for which keys are selected together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hushgram.errors import ParameterError
from hushgram.key_selection.rounds import MetricShares

__all__ = ["OWNER", "PARTS", "SharedSelection", "Split"]

#: what messages about parameters begin with
OWNER = "ReleaseParams"
PARTS = ("size", "threshold", "encoding", "selection", "vector", "users")


@dataclass(frozen=True)
class Split:
    """How ε is divided. These are the budgets and add up to ε.

    Selection by a threshold has a part for sizing and one for the threshold, which the encoding shares (the paper has
    one for each); selection by weights has one for sizing, one for selection, and one for the vector of counts and
    buckets. ``users`` is that of the histogram over users, where they are known.
    """

    size: Fraction
    threshold: Fraction
    encoding: Fraction
    selection: Fraction = Fraction(0)
    vector: Fraction = Fraction(0)
    users: Fraction = Fraction(0)

    @property
    def total(self) -> Fraction:
        """Return the sum of all parts."""
        return sum((getattr(self, name) for name in PARTS), Fraction(0))


@dataclass(frozen=True)
class SharedSelection:
    """One selection of keys for several metrics of a pass, as one of them states it: its own name, and all parts."""

    metric: str
    metrics: tuple[tuple[str, MetricShares], ...]

    @property
    def others(self) -> tuple[str, ...]:
        """Return the names of the other metrics."""
        return tuple(name for name, _ in self.metrics if name != self.metric)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return {
            "metric": self.metric,
            "metrics": [{"metric": name, **shares.to_dict()} for name, shares in self.metrics],
        }

    @classmethod
    def from_dict(cls, text: Mapping[str, Any]) -> SharedSelection:
        """Return what `to_dict` wrote; raise a ParameterError where a number is out of range."""
        metrics = tuple((str(each["metric"])[:40], MetricShares.from_dict(each)) for each in text["metrics"])
        if [name for name, _ in metrics].count(text["metric"]) != 1:
            raise ParameterError(f"{OWNER}: shared must name its own metric once among all of them")
        return cls(str(text["metric"]), metrics)
