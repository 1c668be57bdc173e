"""Event records: one use of the data by one mechanism, in a form whose meaning never changes.

An event says: *given everything released before, this mechanism is (ε, δ)-differentially private with respect
to its relation*: one user added or removed (in the whole data, or in the part of the users that it names), or
one secret bit of one record changed. Events of one relation compose; sums over different relations mean
nothing. Nothing else is needed to compose events, so nothing else is relied on: `details` are for the reader
of the history.

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
from typing import TypeAlias

from hushgram.errors import ParameterError
from hushgram.numbers import Number, rational, rational_delta, show

__all__ = ["KINDS", "RELATIONS", "Event", "Spending", "spending"]

KINDS: Mapping[tuple[str, int], str] = MappingProxyType(
    {
        ("sizing", 1): "discrete Laplace on the number of records and the profile of counts",
        ("threshold", 1): "discrete Laplace on every count, kept from a public threshold on",
        ("alp", 1): "random rounding and randomized response on the bits of an ALP projection",
        ("svt", 1): "sparse vector: which queries are above a threshold",
        ("pmw", 1): "private multiplicative weights, all rounds of one stream",
        ("laplace", 1): "discrete Laplace on a vector of bounded L1 sensitivity",
        ("rr", 1): "randomized response on one secret bit of each user",
        ("noisy_max", 1): "selection of the largest by permute-and-flip",
        ("exponential", 1): "selection of the largest by the exponential mechanism",
        ("laplace_noisy_max", 1): "selection of the largest after Laplace noise on every score",
        ("gaussian", 1): "discrete Gaussian on a vector of bounded L2 sensitivity",
        ("contributions", 1): "discrete Laplace on the number of users by what they contribute",
        (
            "weighted-selection",
            1,
        ): "selection of keys by weights and counts of the selected ones (and the cells of an"
        " encoding with the same noise), all with discrete Gaussian noise",
        ("restored", 1): "spending that a restored ledger had lost, as its rollback anchor recorded it",
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

Spending: TypeAlias = "Counter[tuple[Fraction, Fraction]]"
"""How often each (ε, δ) was spent: all that composition needs to know about a list of events."""


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

    @property
    def meaning(self) -> str:
        """What was released, in words."""
        return KINDS.get((self.kind, self.version), self.kind)

    def scaled(self, factor: Fraction) -> Event:
        """Return the same mechanism at `factor` times the ε (δ stays)."""
        return replace(self, epsilon=self.epsilon * factor)

    def __repr__(self) -> str:
        slack = f", δ = {show(self.delta)}" if self.delta else ""
        return f"Event({self.kind}: ε = {show(self.epsilon)}{slack})"


def spending(events: Iterable[Event]) -> Spending:
    """Count how often each (ε, δ) occurs among the events; those that cost nothing are left out.

    >>> spending([Event("laplace", "0.1"), Event("rr", "0.1"), Event("svt", 0)])
    Counter({(Fraction(1, 10), Fraction(0, 1)): 2})
    """
    return Counter((event.epsilon, event.delta) for event in events if event.epsilon or event.delta)
