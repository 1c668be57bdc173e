"""What a release promises: who is protected, against which change, and at what cost. In numbers and in words.

    Guarantee(parts=(Event("laplace", 1),), unit="user", max_contributions=8).sentence()
    "The result is 1-differentially private for one user added or removed, where each user counts at most 8 in all."

Manifests, `inspect`, `--check` and the lines after a run take their sentence from here, so that none of them can say
"user" where a record is protected. The formula behind it, for outputs S and neighbours D, D' of the stated relation:

    Pr[M(D) ∈ S] ≤ e^ε · Pr[M(D') ∈ S] + δ,    ε = Σ εᵢ and δ = Σ δᵢ over the parts (basic composition)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from hushgram.accounting.events import Event
from hushgram.errors import ParameterError
from hushgram.numbers import show
from hushgram.sensitivity import PRIVACY_UNITS, PrivacyUnit

__all__ = ["RELATIONS", "Guarantee", "Relation"]

#: What neighbouring data differ in: the unit is there or not; or it is there, and its secret bits are others.
Relation: TypeAlias = Literal["added or removed", "secret bits changed"]
RELATIONS: tuple[Relation, ...] = ("added or removed", "secret bits changed")


@dataclass(frozen=True)
class Guarantee:
    """(ε, δ)-differential privacy of everything that a release publishes, together.

    ``max_contributions`` and ``max_per_key`` are the bounds that are enforced on each user before anything is
    computed; they are not part of what is promised for a record. ``subject`` begins the sentence. ``steps`` are all
    parts in words, each with its own bounds, where one pair of bounds would not say it. ``note`` is about a part that
    has other bounds.
    """

    parts: tuple[Event, ...]
    unit: PrivacyUnit = "user"
    relation: Relation = "added or removed"
    max_contributions: int | Fraction | None = None
    max_per_key: int | Fraction | None = None
    subject: str = "The result is"
    steps: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for name, known in (("unit", PRIVACY_UNITS), ("relation", RELATIONS)):
            if getattr(self, name) not in known:
                raise ParameterError(
                    f"Guarantee: {name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )

    @classmethod
    def of(cls, events: Iterable[Event], **fields: Any) -> Guarantee:
        """Return the guarantee of what the ledger is charged for; who is protected follows from the events."""
        parts = tuple(events)
        if parts and parts[0].relation in PRIVACY_UNITS:
            fields["unit"] = parts[0].relation
        return cls(parts, **fields)

    @property
    def epsilon(self) -> Fraction:
        """ε of all parts together."""
        return sum((part.epsilon for part in self.parts), Fraction(0))

    @property
    def delta(self) -> Fraction:
        """δ of all parts together."""
        return sum((part.delta for part in self.parts), Fraction(0))

    @property
    def loss(self) -> str:
        """ "1" or "(1, 0.000001)"."""
        return f"({show(self.epsilon)}, {show(self.delta)})" if self.delta else show(self.epsilon)

    def sentence(self) -> str:
        """Return the guarantee in words: ε and δ, who, against what, under which bounds."""
        if self.relation == "secret bits changed":
            bits = f" ({show(self.parts[0].epsilon)} for each bit)" if len(self.parts) > 1 else ""
            return (
                f"{self.subject} {self.loss}-locally differentially private for the secret bits of one "
                f"{self.unit} changed{bits}; public columns and the number of {self.unit}s are not protected."
            )
        return (
            f"{self.subject} {self.loss}-differentially private for one {self.unit} added or removed"
            f"{self._bounds()}.{self.steps and ' '}{self.steps}{self.note and ' '}{self.note}"
        )

    def meaning(self) -> str:
        """Return the guarantee for readers to whom the formula is new."""
        rest = f", except with probability {show(self.delta)}" if self.delta else ""
        change = f"whether any one {self.unit} is in the data or not"
        if self.relation == "secret bits changed":
            change = f"what the secret bits of any one {self.unit} are"
        return (
            f"{change[0].upper()}{change[1:]} changes the probability of any output by a factor of at most "
            f"e^{show(self.epsilon)}{rest}."
        )

    def as_json(self) -> dict[str, Any]:
        """Return the guarantee for a header or a manifest; exact numbers are text, the usual relation is left out."""
        other = {} if self.relation == RELATIONS[0] else {"relation": self.relation}
        return {
            "epsilon": show(self.epsilon),
            "delta": show(self.delta),
            "unit": self.unit,
            **other,
            "words": self.sentence(),
        }

    def _bounds(self) -> str:
        if self.unit != "user" or self.max_contributions is None or self.steps:
            return ""
        per_key = "" if self.max_per_key is None else f" and {show(Fraction(self.max_per_key))} for one key"
        return f", where each user counts at most {show(Fraction(self.max_contributions))} in all{per_key}"
