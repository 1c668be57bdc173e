"""What goes into the ledger and what comes out of it: frozen records, and their rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hushgram.accounting import Budget, Cost, Event, Spending
from hushgram.contributions.users import UserPart
from hushgram.errors import LedgerError, ParameterError
from hushgram.ledger.store import now

__all__ = [
    "PART_BY", "Dataset", "ReleaseRecord", "Request", "Reservation", "Spent", "check_name", "event_of",
    "refuse_if_changed", "spent_on",
]  # fmt: skip

_NAME_LIMIT = 200
PART_BY = "input.user"
"""The parameter whose hash decides which part of the users a person is in: the same for all parts of a data set."""
_PLAIN = (  # columns that a record holds unchanged
    *("id", "dataset", "name", "attempt", "job", "status", "users", "target"),
    *("digest", "owner", "lease", "reserved", "finished"),
)


@dataclass(frozen=True)
class Request:
    """What a job asks of the ledger before it reads data.

    Args:
        dataset: the data set whose budget is spent.
        release: the id of the release.
        events: what the release spends, all for one relation.
        job: the kind of job.
        parameters: the public choices that can change the output, as texts; the same in a rerun under the same id.
        inputs: the fingerprint of each input file; None if the files are gone, which only a committed release allows.
        target: where the output goes.
        users: the part of the users (`UserPart.name`) that the job selects by the parameter "input.user"; None is all.
        resumable: False for interactive mechanisms, which never run again once their key is handed out.
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
        if len(relations := sorted({event.relation for event in self.events})) > 1:
            raise ParameterError(f"Request: events must have one relation, got {' and '.join(relations)}")
        if self.users is not None:
            UserPart.parse(self.dataset, self.users)
            if PART_BY not in self.parameters:
                raise ParameterError(
                    f"Request: a part of the users needs {PART_BY!r} among its parameters: the column or key "
                    "expression whose hash decides who is in which part"
                )

    @property
    def all_parameters(self) -> dict[str, str]:
        """The parameters, and what the ledger itself compares."""
        spends = {
            f"event {n} ({e.kind})": f"epsilon {e.epsilon}, delta {e.delta}"
            + ("" if e.relation == "user" else f", {e.relation}")
            for n, e in enumerate(self.events, 1)
        }
        return {**self.parameters, "job": self.job, "users": self.users or "all", **spends}

    def row(self, attempt: int) -> dict[str, Any]:
        """Return the columns of this request."""
        return {
            "dataset": self.dataset,
            "name": self.release,
            "attempt": attempt,
            "job": self.job,
            "charged": 1,
            "parameters": json.dumps(self.all_parameters, sort_keys=True),
            "inputs": json.dumps(dict(self.inputs or {}), sort_keys=True),
            "target": self.target,
            "reserved": now(),
            "users": self.users,
            "resumable": int(self.resumable),
        }

    def event_rows(self) -> list[dict[str, Any]]:
        """Return the rows of its events."""
        return [
            {
                "position": position,
                "kind": event.kind,
                "version": event.version,
                "epsilon": str(event.epsilon),
                "delta": str(event.delta),
                "details": json.dumps(dict(event.details), sort_keys=True),
                "relation": event.relation,
            }
            for position, event in enumerate(self.events, 1)
        ]


@dataclass(frozen=True)
class Dataset:
    """The name of a data set and its budget."""

    name: str
    budget: Budget
    created: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Dataset:
        """Return a row of the table."""
        return cls(row["name"], Budget(row["epsilon"], row["delta"], row["composition"]), row["created"])


@dataclass(frozen=True)
class ReleaseRecord:
    """One attempt at a release, as the history shows it. The key is not part of it."""

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
    def from_row(cls, row: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> ReleaseRecord:
        """Return a row of the table with its events and without its secret."""
        return cls(
            **{name: row[name] for name in _PLAIN},
            charged=bool(row["charged"]),
            resumable=bool(row["resumable"]),
            parameters=json.loads(row["parameters"]),
            inputs=json.loads(row["inputs"]),
            events=tuple(map(event_of, events)),
        )

    @property
    def label(self) -> str:
        """The release as messages call it."""
        return f"release {self.name} of {self.dataset}"

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

    `status` is what the ledger held when the run began: "new" for a new reservation, "reserved", "running" or
    "prepared" for one that is resumed, "committed" for a release that is finished.
    """

    release: ReleaseRecord
    status: str
    token: str

    @property
    def done(self) -> bool:
        """Whether this release was committed before."""
        return self.status == "committed"


@dataclass(frozen=True)
class Spent:
    """All charged spending of a data set: on all users, and on each part of them.

    A user is in at most one part. So the loss of a user is that of `shared` and at most one part (parallel composition;
    McSherry 2009, Theorem 4), and the loss of the data set is the largest of these.
    """

    shared: Spending
    parts: Mapping[str, Spending] = field(default_factory=dict)

    def by_part(self) -> dict[str | None, Spending]:
        """Return the total spending on the users of each part (None: there are no parts)."""
        if not self.parts:
            return {None: self.shared}
        return {name: self.shared + part for name, part in sorted(self.parts.items())}

    def affected(self, users: str | None) -> dict[str | None, Spending]:
        """Return the totals that events on `users` change."""
        totals = self.by_part()
        return totals if users is None else {users: totals.get(users, self.shared)}

    def with_events(self, events: Spending, users: str | None) -> Spent:
        """Return the spending after these events as well."""
        if users is None:
            return Spent(self.shared + events, self.parts)
        part: Spending = Counter(self.parts.get(users, Counter()))
        return Spent(self.shared, {**self.parts, users: part + events})


def event_of(row: Mapping[str, Any]) -> Event:
    """Return a row of the table of events."""
    details = json.loads(row["details"])
    return Event(row["kind"], row["epsilon"], row["delta"], details, row["version"], row["relation"])


def spent_on(charges: Iterable[tuple[str | None, Cost]]) -> Spent:
    """Add up the costs of charged events on each part of the users."""
    shared: Spending = Counter()
    parts: dict[str, Spending] = {}
    for (users, cost), times in Counter(charges).items():
        into = shared if users is None else parts.setdefault(users, Counter())
        into[cost] += times
    return Spent(shared, parts)


def check_name(what: str, text: object) -> None:
    """Raise for a name that cannot be printed as it is: control characters, line breaks, bidirectional controls."""
    if not isinstance(text, str) or not text.strip() or len(text) > _NAME_LIMIT or not text.isprintable():
        raise ParameterError(f"{what} must be 1 to {_NAME_LIMIT} printable characters, got {text!r:.60}")


def refuse_if_changed(found: ReleaseRecord, request: Request) -> None:
    """Raise if a rerun requests something else than the run before it, and name the difference."""
    done = found.status == "committed"
    before = {name: text for name, text in found.parameters.items() if name != "target"}
    changed = _differences(before, request.all_parameters)
    if done:  # a release that is not published yet may change its target
        changed += _differences({"target": found.target}, {"target": request.target})
    if not done or (request.inputs is not None and _comparable(found.inputs, request.inputs)):
        after = request.inputs or {}
        changed += [  # names only: fingerprints mean nothing to a reader
            f"input {name} "
            + ("is new" if name not in found.inputs else "is missing" if name not in after else "has changed")
            for name in sorted(found.inputs.keys() | after.keys())
            if found.inputs.get(name) != after.get(name)
        ]
    if changed:
        more = f" (and {len(changed) - 3} more)" if len(changed) > 3 else ""
        remedy = "use another id" if done else f"use another id, or `hushgram ledger abandon {found.name}`"
        raise LedgerError(
            f"{found.label} was {'released' if done else 'reserved'} at "
            f"{found.finished or found.reserved} with other parameters or inputs: "
            f"{'; '.join(changed[:3])}{more}; {remedy}"
        )


def _comparable(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Return whether fingerprints were taken under one secret; a restored ledger has another than before."""
    which = {text.partition(":")[0] for text in (*before.values(), *after.values())}
    return bool(before) and len(which) == 1


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return each field that differs, as "name was A, is B"."""
    return [
        f"{name} was {_short(before.get(name))}, is {_short(after.get(name))}"
        for name in sorted(before.keys() | after.keys(), key=lambda name: (name.startswith("event "), name))
        if before.get(name) != after.get(name)
    ]


def _short(value: str | None) -> str:
    if value is None:
        return "absent"
    return value if len(value) <= 100 else value[:97] + "..."
