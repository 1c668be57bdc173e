"""What goes into the ledger and what comes out of it: plain frozen records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from hushgram.accounting import RELATIONS, Budget, Event, Spending
from hushgram.errors import ParameterError
from hushgram.exact.partition import UserPart

__all__ = [
    "PART_BY", "Charge", "Dataset", "Release", "Request", "Reservation", "Spent", "check_name", "differences",
    "spent_by_relation",
]  # fmt: skip

_NAME_LIMIT = 200
PART_BY = "input.user"
"""The parameter that says what the parts of a data set's users are made by: the same for all of them."""
_PLAIN = (  # as they are in the row
    *("id", "dataset", "name", "attempt", "job", "status", "users", "target"),
    *("digest", "owner", "lease", "reserved", "finished"),
)


@dataclass(frozen=True)
class Request:
    """What a job asks the ledger for, before it reads data.

    `parameters` and `inputs` are the fingerprint of the release, text to text: a rerun under the same id must
    bring the same. `inputs` None: they are gone, which only a release that is committed can do without.
    `users` names a part of the users (`UserPart.name`), which the job has applied to what `parameters` name as
    "input.user"; None is all users.
    `resumable` is False for interactive mechanisms: once their key is handed out, they are never run again.
    """

    dataset: str
    release: str
    events: Sequence[Event]
    job: str = "release"
    parameters: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] | None = field(default_factory=dict)
    target: str = ""
    users: str | None = None
    resumable: bool = True

    def __post_init__(self) -> None:
        for name in ("dataset", "release"):
            check_name(f"Request: {name}", getattr(self, name))
        if not self.events:
            raise ParameterError("Request: events must name what the release spends, got none")
        if self.users is not None:
            UserPart.parse(self.dataset, self.users)
            if PART_BY not in self.parameters:
                raise ParameterError(
                    f"Request: a part of the users needs {PART_BY!r} among its parameters: the column or key "
                    "expression whose hash decides who is in which part"
                )

    @property
    def all_parameters(self) -> dict[str, str]:
        """The parameters with what the ledger itself relies on."""
        spends = {
            f"event {n} ({e.kind})": f"epsilon {e.epsilon}, delta {e.delta}"
            + ("" if e.relation == "user" else f", {e.relation}")
            for n, e in enumerate(self.events, 1)
        }
        own = {"job": self.job, "users": self.users or "all", **spends}
        return {**dict(self.parameters), **own}


@dataclass(frozen=True)
class Dataset:
    """A budget and its name."""

    name: str
    budget: Budget
    created: str


@dataclass(frozen=True)
class Release:
    """One attempt at a release, as the history shows it. The key is not here."""

    id: int
    dataset: str
    name: str
    attempt: int
    job: str
    status: str
    charged: bool
    users: str | None
    parameters: Mapping[str, str]
    inputs: Mapping[str, str]
    target: str
    digest: str | None
    owner: str | None
    lease: float | None
    reserved: str
    finished: str | None
    resumable: bool = True
    events: tuple[Event, ...] = ()

    @classmethod
    def from_row(cls, row: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> Release:
        """A row of the table with those of its events, and without its secret."""
        plain = {name: row[name] for name in _PLAIN}
        return cls(
            **plain,
            charged=bool(row["charged"]),
            resumable=bool(row["resumable"]),
            parameters=json.loads(row["parameters"]),
            inputs=json.loads(row["inputs"]),
            events=tuple(
                Event(
                    e["kind"], e["epsilon"], e["delta"], json.loads(e["details"]), e["version"], e["relation"]
                )
                for e in events
            ),
        )

    @property
    def epsilon(self) -> Fraction:
        """The sum of its events' ε."""
        return sum((event.epsilon for event in self.events), Fraction(0))

    @property
    def delta(self) -> Fraction:
        """The sum of its events' δ."""
        return sum((event.delta for event in self.events), Fraction(0))


@dataclass(frozen=True)
class Reservation:
    """The right of one run to make one release.

    `status` is what the ledger held when the run came: "new" for a fresh reservation, "reserved", "running"
    or "prepared" for one that is taken up again, "committed" for one that is done (nothing is left to do).
    """

    release: Release
    status: str
    token: str

    @property
    def done(self) -> bool:
        """Whether this release was committed before."""
        return self.status == "committed"


Charge: TypeAlias = tuple[str | None, str, str, str]
"""An event that counts: the part of the users, ε, δ, relation."""


@dataclass(frozen=True)
class Spent:
    """All charged spending of a data set for one relation: on all users, and on each part of them.

    One user is in at most one part. So the loss of a user is that of `shared` with one part at most (parallel
    composition; McSherry 2009, Theorem 4), and the data set's is the largest of these.
    """

    shared: Spending
    parts: Mapping[str, Spending] = field(default_factory=dict)

    def worlds(self) -> dict[str | None, Spending]:
        """What the users of each part (None: of no part) have been through."""
        if not self.parts:
            return {None: self.shared}
        return {name: self.shared + part for name, part in sorted(self.parts.items())}

    def with_events(self, events: Spending, users: str | None) -> Spent:
        """The spending after these events as well."""
        if users is None:
            return Spent(self.shared + events, self.parts)
        part: Spending = Counter(self.parts.get(users, Counter()))
        return Spent(self.shared, {**self.parts, users: part + events})

    def touched_by(self, users: str | None) -> dict[str | None, Spending]:
        """The worlds that events on `users` change."""
        worlds = self.worlds()
        return worlds if users is None else {users: worlds.get(users, self.shared)}


def spent_by_relation(charges: Iterable[Charge]) -> dict[str, Spent]:
    """The sums over all events that count, apart for each relation: sums over two of them mean nothing."""
    shared: dict[str, Spending] = {relation: Counter() for relation in RELATIONS}
    parts: dict[str, dict[str, Spending]] = {relation: {} for relation in RELATIONS}
    for (users, epsilon, delta, relation), times in Counter(charges).items():
        into = shared[relation] if users is None else parts[relation].setdefault(users, Counter())
        into[Fraction(epsilon), Fraction(delta)] += times
    return {relation: Spent(shared[relation], parts[relation]) for relation in RELATIONS}


def check_name(what: str, text: object) -> None:
    """Refuses a name that cannot be printed as it is: control characters, line breaks, bidirectional controls."""
    if not isinstance(text, str) or not text.strip() or len(text) > _NAME_LIMIT or not text.isprintable():
        raise ParameterError(f"{what} must be 1 to {_NAME_LIMIT} printable characters, got {text!r:.60}")


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Each field that differs, as "name was A, is B"."""
    return [
        f"{name} was {_short(before.get(name))}, is {_short(after.get(name))}"
        for name in sorted(before.keys() | after.keys(), key=lambda name: (name.startswith("event "), name))
        if before.get(name) != after.get(name)
    ]


def _short(value: str | None) -> str:
    if value is None:
        return "absent"
    return value if len(value) <= 100 else value[:97] + "..."
