"""How ε is divided among the parts of a release, and among metrics for which keys are selected together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hushgram.errors import ParameterError
from hushgram.key_selection.rounds import MetricShares
from hushgram.numbers import Number, rational, show

__all__ = ["OWNER", "PARTS", "SharedSelection", "Split"]

#: what messages about parameters begin with
OWNER = "ReleaseParams"
PARTS = ("size", "threshold", "encoding", "contributions", "selection", "counts", "users", "kept")
_THRESHOLD_PARTS, _WEIGHTED_PARTS = (
    ("size", "threshold", "encoding"),
    ("size", "selection", "counts", "encoding"),
)


@dataclass(frozen=True)
class Split:
    """How ε is divided. These are the budgets and add up to ε.

    Selection by a threshold has a part for sizing, threshold and encoding; selection by weights has one for
    sizing, selection, counts of selected keys and encoding. Where C is chosen from the data, that has a part too, and
    where the number of rounds is, ``users`` is that of the numbers of users by keys. ``kept`` is that of the share that
    bounding keeps.
    """

    size: Fraction
    threshold: Fraction
    encoding: Fraction
    contributions: Fraction = Fraction(0)
    selection: Fraction = Fraction(0)
    counts: Fraction = Fraction(0)
    users: Fraction = Fraction(0)
    kept: Fraction = Fraction(0)

    @property
    def total(self) -> Fraction:
        """Return the sum of all parts."""
        return sum((getattr(self, name) for name in PARTS), Fraction(0))

    def to_dict(self) -> dict[str, str]:
        """Return the JSON-ready form: the parts that this way of selection has, and those of choices where there are
        some, and of the share that bounding keeps."""
        names = _WEIGHTED_PARTS if self.selection else _THRESHOLD_PARTS
        choices = (name for name in ("contributions", "users", "kept") if getattr(self, name))
        return {name: show(getattr(self, name)) for name in (*names, *choices)}

    @classmethod
    def from_dict(cls, text: Mapping[str, Any]) -> Split:
        """Return the split that `to_dict` wrote."""
        return cls(*(rational(text.get(name, "0"), f"split.{name}", OWNER) for name in PARTS))

    @classmethod
    def named(cls, shares: Mapping[str, Number], epsilon: Fraction, encoding: str) -> Split:
        """Return the split of shares by name; the encoding's goes by its own name or by "encoding"."""
        named = {"encoding" if name == encoding else name: share for name, share in shares.items()}
        unknown = set(named) - set(PARTS)
        if unknown or len(named) < len(shares):
            wrong = sorted(unknown)[0] if unknown else encoding
            raise ParameterError(
                f"{OWNER}: split has unknown part {wrong!r}; parts are size, threshold, {encoding}, or with weighted"
                f" key selection size, selection, counts, {encoding}; beside them contributions, users and kept"
            )
        return cls(*(epsilon * rational(named.get(name, 0), f"split.{name}", OWNER) for name in PARTS))


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
