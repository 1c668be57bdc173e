"""Sensitivity, and exact values that carry theirs: the one way from bounded data to a mechanism.

An `Exact` value is what noise is added to: counts, sums, answers, tallies. It is private, and it holds its
`Sensitivity`: how far one privacy unit, added or removed, moves it. The code that bounds contributions states the
sensitivity, every function that transforms an exact value derives the new one, and a mechanism admits a value only if
its sensitivity is within the one that the noise was calibrated for:

    records ─ bound contributions ─► Exact ─ transform ─► Exact ─ admit(calibrated) ─► mechanism ─► released

So a bound that is stated in one module and no longer true in another is refused before noise is drawn. Bounds are at
least 1: one that comes out as 0 would be within any other, so it is an error. What no unit moves is `CONSTANT`. The
tests of neighbouring data watch `Exact.admit`: no exact value reaches a mechanism any other way.

| symbol | meaning |
|---|---|
| C, L1 | ``max_contributions``: the most that one unit moves all numbers together |
| L∞ | ``max_per_key``: the most that one unit moves one number |
| L2² | `l2_squared`: the largest sum of squares under both bounds |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgram.errors import ParameterError
from hushgram.numbers import integer

__all__ = [
    "ANY",
    "CONSTANT",
    "ONE_RECORD",
    "PRIVACY_UNITS",
    "UNBOUNDED",
    "Exact",
    "ExactVector",
    "PrivacyUnit",
    "Sensitivity",
    "exact",
]  # fmt: skip

#: The privacy unit: all records of one user, or one record.
PrivacyUnit: TypeAlias = Literal["user", "record"]
PRIVACY_UNITS: tuple[PrivacyUnit, ...] = ("user", "record")

#: A bound for mechanisms whose noise does not depend on it.
ANY = 1 << 62
# Above what any mechanism admits, and as large as bounds get: what is derived from unbounded values is unbounded.
_NONE = 2 * ANY


@dataclass(frozen=True)
class Sensitivity:
    """How far one privacy unit, added or removed, moves a vector of exact numbers.

    The unit moves the numbers by parts of at most ``max_per_key`` that add up to at most ``max_contributions``, all in
    one direction where ``monotone``. Where ``classes`` is not 0, keys belong to that many public classes and a unit
    has at most one key per class; `ANY` says that it has one key, whatever the classes.
    """

    max_contributions: int
    max_per_key: int
    unit: PrivacyUnit = "user"
    monotone: bool = True
    classes: int = 0
    #: a bound on the squared L2 norm below that of the two others, such as for weights; None where there is none
    l2_bound: int | None = None
    #: a bound on how many numbers one unit moves, where that is below ``max_contributions``
    l0_bound: int | None = None
    #: whether it is that of two halves of one vector together, which were bounded together
    halves: bool = False

    def __post_init__(self) -> None:
        for name in ("max_contributions", "max_per_key", "l2_bound", "l0_bound"):
            bound = getattr(self, name)
            if bound is not None and bound < 1:
                raise ParameterError(
                    f"Sensitivity: {name} must be at least 1, got {bound}; what no {self.unit} moves is CONSTANT"
                )
        most = min(self.max_contributions, _NONE)
        object.__setattr__(self, "max_contributions", most)
        object.__setattr__(self, "max_per_key", min(self.max_per_key, most))

    @property
    def l0(self) -> int:
        """The most numbers that one unit moves."""
        return self.max_contributions if self.l0_bound is None else self.l0_bound

    @property
    def l1(self) -> int:
        """The largest ‖x − x'‖₁: C."""
        return self.max_contributions

    @property
    def l2_squared(self) -> int:
        """The largest ‖x − x'‖₂²: as many parts of L∞ as fit into C, and the rest.

        Moving a unit of count from a part x to a part y ≥ x adds 2(y − x) + 2 > 0 to the sum of squares.

        >>> Sensitivity(20, 1).l2_squared, Sensitivity(7, 3).l2_squared
        (20, 19)
        """
        full, rest = divmod(self.max_contributions, self.max_per_key)
        largest = full * self.max_per_key**2 + rest**2
        return largest if self.l2_bound is None else min(largest, self.l2_bound)

    def within(self, calibrated: Sensitivity) -> bool:
        """Return whether noise calibrated for ``calibrated`` protects a value of this sensitivity."""
        return (
            self.unit == calibrated.unit
            and self.max_contributions <= calibrated.max_contributions
            and self.max_per_key <= calibrated.max_per_key
            and self.l2_squared <= calibrated.l2_squared
            and self.l0 <= calibrated.l0
            and (self.monotone or not calibrated.monotone)
            and (calibrated.classes in (0, self.classes) or self.classes == ANY)
            and (self.halves or not calibrated.halves)
        )

    def times(self, factor: int) -> Sensitivity:
        """Return the sensitivity of numbers of which each counts up to ``factor`` times as much."""
        return replace(
            self,
            max_contributions=self.max_contributions * factor,
            max_per_key=self.max_per_key * factor,
            l2_bound=None if self.l2_bound is None else self.l2_bound * factor**2,
        )

    def added_up(self) -> Sensitivity:
        """Return the sensitivity after numbers were summed by public groups: all of C may meet in one sum."""
        return replace(self, max_per_key=self.max_contributions, classes=0, l2_bound=None, l0_bound=None)

    @classmethod
    def side_by_side(cls, parts: Iterable[Sensitivity]) -> Sensitivity:
        """Return the sensitivity of one vector made of several, each of which a unit moves as far as it says.

        >>> Sensitivity.side_by_side([Sensitivity(8, 1)] * 3).l1
        24
        """
        moved = [part for part in parts if part != CONSTANT]
        if len(moved) < 2:
            return moved[0] if moved else CONSTANT
        unit = moved[0].unit
        if any(part.unit != unit for part in moved):
            raise ParameterError(
                "Sensitivity: parts of one vector must have one privacy unit, got user and record"
            )
        return cls(
            sum(part.l1 for part in moved), max(part.max_per_key for part in moved), unit,
            all(part.monotone for part in moved), l2_bound=sum(part.l2_squared for part in moved),
            l0_bound=sum(part.l0 for part in moved),
        )  # fmt: skip

    def __str__(self) -> str:
        per_key = f" and {self.max_per_key:,} per key" if self.max_per_key < self.max_contributions else ""
        apart = ", one key per class" if 0 < self.classes < ANY else ""
        return f"at most {self.max_contributions:,} per {self.unit}{per_key}{apart}"


class _Constant(Sensitivity):
    """No unit moves the value. Only `CONSTANT` says so: bounds that are derived are never 0."""

    max_contributions = max_per_key = 0

    def __init__(self) -> None:
        pass

    @property
    def l2_squared(self) -> int:
        return 0

    def within(self, calibrated: Sensitivity) -> bool:
        return True

    def times(self, factor: int) -> Sensitivity:
        return self

    def added_up(self) -> Sensitivity:
        return self

    def __str__(self) -> str:
        return "nothing"


#: Of the counts of records, where a record is the unit and has one key.
ONE_RECORD = Sensitivity(1, 1, "record", classes=ANY)
#: Of a value that no unit moves, such as an empty histogram.
CONSTANT = _Constant()
#: Of a value that nobody bounded: no mechanism admits it.
UNBOUNDED = Sensitivity(_NONE, _NONE, monotone=False)


class Exact:
    """Base class of exact, private values. It has no writer; only a mechanism turns it into a released value."""

    sensitivity: Sensitivity

    def admit(self, calibrated: Sensitivity) -> Self:
        """Return this value to a mechanism that is calibrated for ``calibrated``; raise where that is too little."""
        if not self.sensitivity.within(calibrated):
            bounded = "not bounded" if self.sensitivity == UNBOUNDED else f"bounded to {self.sensitivity}"
            raise ParameterError(
                f"{type(self).__name__}: the value is {bounded}, but the noise is calibrated for {calibrated}"
            )
        return self

    @staticmethod
    def shared(parts: Iterable[Exact]) -> Sensitivity:
        """Return the sensitivity of a value from those of its parts, which were bounded together."""
        found = {part.sensitivity for part in parts if part.sensitivity != CONSTANT}
        if len(found) > 1:
            raise AssertionError(f"parts of different bounds: {', '.join(map(str, found))}")
        return found.pop() if found else CONSTANT


@dataclass(frozen=True, eq=False)
class ExactVector(Exact):
    """A vector of exact numbers, such as the counts of a public domain or the answers of queries."""

    values: NDArray[np.int64]
    sensitivity: Sensitivity = UNBOUNDED

    @classmethod
    def given(cls, value: object, owner: str) -> ExactVector:
        """Return the vector; a bare array is refused, since nobody says how far a user moves it."""
        if not isinstance(value, cls):
            raise ParameterError(
                f"{owner}: takes exact values with their sensitivity, got {type(value).__name__}; "
                "state it: hushgram.sensitivity.exact(values, max_contributions=8)"
            )
        return value

    def __len__(self) -> int:
        return len(self.values)

    def __add__(self, other: ExactVector) -> ExactVector:
        return ExactVector(self.values + other.values, Exact.shared((self, other)))


def exact(
    values: ArrayLike, *, max_contributions: int, max_per_key: int | None = None, unit: PrivacyUnit = "user"
) -> ExactVector:
    """Return whole numbers as an exact value whose bounds are the caller's promise.

    For mechanisms on numbers that were bounded elsewhere. One privacy unit moves all of them in the same direction,
    as it does counts.

    Args:
        values: whole numbers.
        max_contributions: by how much one privacy unit moves them in all.
        max_per_key: by how much it moves one of them; as much by default.
        unit: the privacy unit, "user" or "record".

    >>> exact([12, 3], max_contributions=8, max_per_key=1).sensitivity.l2_squared
    8
    """
    numbers = np.asarray(values)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ParameterError(f"exact: values must be a list of whole numbers, got {numbers.dtype}")
    if unit not in PRIVACY_UNITS:
        raise ParameterError(f"exact: unit must be {' or '.join(PRIVACY_UNITS)}, got {unit!r:.60}")
    most = integer(max_contributions, "max_contributions", "exact", low=1, high=ANY)
    per_key = most if max_per_key is None else integer(max_per_key, "max_per_key", "exact", low=1, high=ANY)
    return ExactVector(numbers, Sensitivity(most, per_key, unit))
