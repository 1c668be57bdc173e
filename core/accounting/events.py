"""Event records: one use of the data by one mechanism, in a form whose meaning never changes.

An event says: *given everything released before, this mechanism is (ε, δ)-differentially private with respect
to its relation*: one user added or removed (in the whole data, or in the part of the users that it names), or
one secret bit of one record changed. Events of one relation compose; sums over different relations mean
nothing. Nothing else is needed to compose events, so nothing else is relied on: `details` are for the reader
of the history.

From version 2 on an event also states ρ and δ_ρ (`Event.concentrated`), for the same neighbours P and Q, in both
directions: *outcomes that Q never gives have probability at most δ_ρ under P, and on all others*

    E_Q[(P/Q)^α] ≤ exp((α − 1)·α·ρ)    for every α > 1,

which is ρ-zCDP (Bun, Steinke 2016) where δ_ρ is 0. A vector with discrete Gaussian noise has ρ = Δ²/2σ² (Canonne,
Kamath, Steinke 2020, Theorem 14), several of them Σ Δ²/2σ², also where each follows from those before it; δ_ρ is that
of thresholds alone. An event without ρ has ρ = ε²/2 and δ_ρ = δ (`hushgram.accounting.composition`).

A stored event must mean in ten years what it means today. So a kind is never redefined: a mechanism that
changes gets a new kind or the next `version` of it, and the old one stays in `KINDS`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from hushgram.errors import ParameterError
from hushgram.numbers import Number, rational, rational_delta, show

__all__ = ["KINDS", "RELATIONS", "Cost", "Event", "Spending", "spending"]

KINDS: Mapping[tuple[str, int], str] = MappingProxyType(
    {
        ("sizing", 1): "discrete Laplace on the number of records and the profile of counts",
        ("threshold", 1): "discrete Laplace on every count, kept from a public threshold on",
        ("alp", 1): "random rounding and randomized response on the bits of an ALP projection",
        ("svt", 1): "sparse vector: which queries are above a threshold",
        ("svt", 2): "sparse vector with one-sided noise: which queries are above a threshold",
        ("pmw", 1): "private multiplicative weights, all rounds of one stream",
        (
            "pmw",
            2,
        ): "private multiplicative weights, comparisons with one-sided noise, all rounds of one stream",
        ("laplace", 1): "discrete Laplace on a vector of bounded L1 sensitivity",
        ("rr", 1): "randomized response on one secret bit of each user",
        ("noisy_max", 1): "selection of the largest by permute-and-flip",
        ("exponential", 1): "selection of the largest by the exponential mechanism",
        ("laplace_noisy_max", 1): "selection of the largest after Laplace noise on every score",
        ("gaussian", 1): "discrete Gaussian on a vector of bounded L2 sensitivity",
        (
            "truncated_geometric",
            1,
        ): "truncated geometric on every count, kept from the optimal threshold on; one key per privacy unit",
        ("contributions", 1): "discrete Laplace on the number of users by what they contribute",
        (
            "kept",
            1,
        ): "discrete Laplace on what users have before and after bounding, summed by how much they have",
        (
            "weighted-selection",
            1,
        ): "selection of keys by weights and counts of the selected ones (and the cells of an"
        " encoding with the same noise), all with discrete Gaussian noise",
        ("restored", 1): "spending that a restored ledger had lost, as its rollback anchor recorded it",
        ("threshold", 2): "discrete Laplace on every count, kept from a public threshold on; states ρ",
        ("laplace", 2): "discrete Laplace on a vector of bounded L1 sensitivity; states ρ",
        ("gaussian", 2): "discrete Gaussian on a vector of bounded L2 sensitivity; states ρ",
        (
            "weighted-selection",
            2,
        ): "selection of keys by weights and counts of the selected ones (and the cells of an"
        " encoding with the same noise), all with discrete Gaussian noise; states ρ",
        (
            "restored",
            2,
        ): "spending that a restored ledger had lost, as its rollback anchor recorded it; states ρ",
    }
)
"""What the kinds of this version release, by name and version. Entries are added, never changed; a noise or an encoding
from elsewhere is an event under its own name."""

RELATIONS: Mapping[str, str] = MappingProxyType(
    {
        "user": "one user added or removed",
        "record": "one record added or removed (a user with many records is not protected)",
        "secret bit": "one secret bit of one record changed (who took part is visible)",
    }
)
"""Whom an event is about: the two data sets that it makes hard to tell apart differ in this."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,59}")

# Where events keep ρ and δ_ρ: details are covered by a ledger's MACs, and an old ledger needs no new column.
_RHO, _RHO_DELTA = "rho", "rho_delta"


class Cost(NamedTuple):
    """All that composition needs to know about an event."""

    epsilon: Fraction
    delta: Fraction
    rho: Fraction
    rho_delta: Fraction


Spending: TypeAlias = "Counter[Cost]"
"""How often each cost was spent."""


@dataclass(frozen=True)
class Event:
    """One mechanism's use of the data: (ε, δ)-DP for its relation, by default one user added or removed.

    >>> Event("laplace", "0.1", details={"sensitivity": "8"})
    Event(laplace: ε = 0.1)
    >>> Event("threshold", "1/3", "1e-6").epsilon
    Fraction(1, 3)
    """

    kind: str
    epsilon: Fraction
    delta: Fraction = Fraction(0)
    details: Mapping[str, str] = field(default_factory=dict, hash=False)
    version: int = 1
    relation: str = "user"

    def __init__(
        self,
        kind: str,
        epsilon: Number,
        delta: Number = 0,
        details: Mapping[str, str] | None = None,
        version: int = 1,
        relation: str = "user",
    ) -> None:
        if not _NAME.fullmatch(kind):
            raise ParameterError(f"Event: kind must be a name such as laplace, got {kind!r:.60}")
        if not 1 <= version <= max((known for name, known in KINDS if name == kind), default=1):
            raise ParameterError(f"Event: version {version} of {kind} is unknown")
        if relation not in RELATIONS:
            raise ParameterError(f"Event: relation must be {' or '.join(RELATIONS)}, got {relation!r:.60}")
        loss, slack = rational(epsilon, "epsilon", "Event"), rational_delta(delta, "Event")
        if loss < 0:
            raise ParameterError(f"Event: epsilon must not be negative, got {show(loss)}")
        for name, value in (
            ("kind", kind),
            ("epsilon", loss),
            ("delta", slack),
            ("details", MappingProxyType({str(k): str(v) for k, v in (details or {}).items()})),
            ("version", version),
            ("relation", relation),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def concentrated(
        cls,
        kind: str,
        epsilon: Fraction,
        delta: Fraction,
        *,
        rho: Fraction,
        rho_delta: Fraction,
        relation: str = "user",
        details: Mapping[str, str] | None = None,
    ) -> Event:
        """Return an event that states ρ and δ_ρ as well; version 1 where that is no better than (ε, δ).

        >>> one, delta = Fraction(1), Fraction(1, 10**6)
        >>> Event.concentrated("gaussian", one, delta, rho=one / 36, rho_delta=0 * one).cost.rho
        Fraction(1, 36)
        """
        if rho < 0 or not 0 <= rho_delta <= delta:
            raise ParameterError("Event: rho must not be negative, and rho_delta must be from 0 to delta")
        if rho_delta == delta and rho >= epsilon * epsilon / 2:
            return cls(kind, epsilon, delta, details, 1, relation)
        stated = {**(details or {}), _RHO: str(rho), _RHO_DELTA: str(rho_delta)}
        return cls(kind, epsilon, delta, stated, 2, relation)

    @property
    def cost(self) -> Cost:
        """What the event costs: as stated, else ρ = ε²/2 at the event's δ."""
        if self.version > 1 and _RHO in self.details:
            stated = Fraction(self.details[_RHO]), Fraction(self.details[_RHO_DELTA])
            return Cost(self.epsilon, self.delta, *stated)
        return Cost(self.epsilon, self.delta, self.epsilon * self.epsilon / 2, self.delta)

    @property
    def meaning(self) -> str:
        """What was released, in words."""
        return KINDS.get((self.kind, self.version), self.kind)

    def scaled(self, factor: Fraction) -> Event:
        """Return the same mechanism at `factor` ≤ 1 times the ε (δ stays); ρ falls at least as much."""
        details = dict(self.details)
        if self.version > 1 and _RHO in details:
            details[_RHO] = str(Fraction(details[_RHO]) * factor)
        return replace(self, epsilon=self.epsilon * factor, details=details)

    def __repr__(self) -> str:
        slack = f", δ = {show(self.delta)}" if self.delta else ""
        return f"Event({self.kind}: ε = {show(self.epsilon)}{slack})"


def spending(events: Iterable[Event]) -> Spending:
    """Count how often each cost occurs among the events; those that cost nothing are left out.

    >>> spending([Event("laplace", "0.1"), Event("rr", "0.1"), Event("svt", 0)]).most_common(1)[0][1]
    2
    """
    return Counter(event.cost for event in events if event.epsilon or event.delta)
