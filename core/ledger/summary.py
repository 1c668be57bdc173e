"""What `hushgram ledger show` says: spent, left, and how the sum comes about.

A sum by privacy loss distributions loads SciPy and takes seconds. So the ledger keeps the last summary of
each data set beside a tag of it and of everything it depends on, and computes it again only when that has changed; a
run computes it after its commit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sqlalchemy as sa

from hushgram.accounting import CONDITIONS, RELATIONS, Budget, Spending, further, spending, total
from hushgram.accounting.composition import basic
from hushgram.errors import LedgerError
from hushgram.ledger.ledger import Ledger
from hushgram.ledger.records import Release, Spent, spent_by_relation
from hushgram.ledger.rows import dataset_of, history_of
from hushgram.ledger.tables import totals
from hushgram.numbers import show

__all__ = ["Summary", "brief", "summarise"]

_FORM = 5
"""Counts changes of the cached form, so that an old cache is not read as a new one."""


_APART = {
    "secret bit": "it hides one bit of one record, not who took part, and is not added to the above; a person with "
    "several records loses as many times this ε"
}


@dataclass(frozen=True)
class Summary:
    """The state of one data set's budget. Numbers are exact texts; `better_epsilon` is an upper bound.

    Spent and left add up to the budget, in ε and in δ.
    """

    dataset: str
    budget_epsilon: str
    budget_delta: str
    composition: str
    spent_epsilon: str
    spent_delta: str
    proof: str
    basic_epsilon: str
    basic_delta: str
    better_epsilon: str | None
    left_epsilon: str
    left_delta: str
    composition_delta: str
    event_delta_left: str
    worst_part: str | None
    parts: dict[str, str]
    statuses: dict[str, int]
    kinds: dict[str, dict[str, Any]]
    apart: dict[str, dict[str, Any]]
    last_release: str | None
    last_epsilon: str | None
    more: int | None
    more_basic: int | None
    warning: str | None = None

    def explain(self) -> list[str]:
        """The sum in sentences, with the condition under which the budget holds."""
        lines = [f"sums: ε = {brief(self.basic_epsilon)} at δ = {brief(self.basic_delta)} (exact)"]
        name = {"filter": "squares of ε", "best": "privacy loss distributions"}.get(self.composition)
        if name is not None and self.better_epsilon is None:
            lines.append(f"{name}: none, they need a δ of the budget that is left over")
        elif name is not None and self.better_epsilon is not None:
            chosen = "the sums" if self.proof == "sums" else name
            lines.append(f"{name}: ε ≤ {brief(self.better_epsilon)}; the better of the two counts: {chosen}")
        if self.composition_delta != "0":
            lines.append(
                f"of the budget's δ, {brief(self.composition_delta)} is for composition and "
                f"{brief(self.event_delta_left, up=False)} is left for the δ of releases"
            )
        for name, one in self.apart.items():
            cost = f"ε = {brief(one['spent_epsilon'])}, δ = {brief(one['spent_delta'])}"
            lines.append(f"apart, for one {name}: {cost}; {_APART.get(name, 'it is not added to the above')}")
        lines.append(f"composition {self.composition}: {CONDITIONS[self.composition]}")
        if self.parts:
            lines.append(
                f"parts of the users are disjoint, so the one that has seen most counts: {self.worst_part}"
            )
        return lines


def summarise(ledger: Ledger, dataset: str) -> Summary:
    """The summary of a data set, from the cache where nothing has changed."""
    with ledger.store.read() as connection:
        account = ledger.account(connection, dataset)
        row = connection.execute(sa.select(totals).where(totals.c.dataset == dataset)).one_or_none()
    budget, history, warning = dataset_of(account.dataset).budget, history_of(account), ledger.behind(account)
    state = _state(account.links[-1], history)
    if row is not None and row.stamp == ledger.store.sealer.tag("total", state, row.body):
        return dataclasses.replace(Summary(**json.loads(row.body)), warning=warning)
    last = next((release for release in reversed(history) if release.charged), None)
    summary = _compute(dataset, budget, spent_by_relation(account.charges()), history, last)
    with contextlib.suppress(LedgerError), ledger.store.write() as connection:  # a cache: may stay unwritten
        connection.execute(totals.delete().where(totals.c.dataset == dataset))
        body = json.dumps(dataclasses.asdict(summary))
        stamp = ledger.store.sealer.tag("total", state, body)
        connection.execute(totals.insert().values(dataset=dataset, stamp=stamp, body=body))
    return dataclasses.replace(summary, warning=warning)


def _compute(
    dataset: str, budget: Budget, spends: dict[str, Spent], history: list[Release], last: Release | None
) -> Summary:
    spent = spends["user"]
    counted = {name: total(world, budget) for name, world in spent.worlds().items()}
    worst = max(counted, key=lambda name: (counted[name].epsilon, counted[name].delta))
    bound = counted[worst]
    sums_alone = Budget(budget.epsilon, budget.delta, "basic")
    return Summary(
        dataset=dataset,
        budget_epsilon=show(budget.epsilon),
        budget_delta=show(budget.delta),
        composition=budget.rule,
        spent_epsilon=show(bound.epsilon),
        spent_delta=show(bound.delta),
        proof=bound.proof,
        basic_epsilon=show(bound.basic_epsilon),
        basic_delta=show(bound.basic_delta),
        better_epsilon=None if bound.better_epsilon is None else show(bound.better_epsilon),
        left_epsilon=show(max(Fraction(0), budget.epsilon - bound.epsilon)),
        left_delta=show(max(Fraction(0), budget.delta - bound.delta)),
        composition_delta=show(budget.composition_delta),
        event_delta_left=show(max(Fraction(0), budget.delta - budget.composition_delta - bound.basic_delta)),
        worst_part=worst,
        parts={str(name): show(one.epsilon) for name, one in counted.items() if name is not None},
        statuses=dict(Counter(release.status for release in history)),
        kinds=_by_kind(history, "user"),
        apart=_apart(spends, history, budget),
        last_release=None if last is None else last.name,
        last_epsilon=None if last is None else show(last.epsilon),
        more=None if last is None else _more(spends, last, budget),
        more_basic=None if last is None else _more(spends, last, sums_alone),
    )


def _more(spends: dict[str, Spent], like: Release, budget: Budget) -> int:
    """How many more releases like this one fit, in the worst world that it touches, for each relation."""
    return min(
        further(world, events, budget)
        for relation, spent in spends.items()
        if (events := [event for event in like.events if event.relation == relation])
        for world in spent.touched_by(like.users).values()
    )


def _apart(spends: dict[str, Spent], history: list[Release], budget: Budget) -> dict[str, dict[str, Any]]:
    """What was spent for other relations than one user added or removed; never added to it."""
    found: dict[str, dict[str, Any]] = {}
    for relation, spent in spends.items():
        kinds = _by_kind(history, relation)
        if relation != "user" and kinds:
            bounds = [total(world, budget) for world in spent.worlds().values()]
            worst = max(bounds, key=lambda bound: (bound.epsilon, bound.delta))
            numbers = {"spent_epsilon": show(worst.epsilon), "spent_delta": show(worst.delta)}
            found[relation] = {"meaning": RELATIONS[relation], **numbers, "kinds": kinds}
    return found


def _by_kind(history: list[Release], relation: str) -> dict[str, dict[str, Any]]:
    found: defaultdict[str, Spending] = defaultdict(Counter)
    for release in history:
        if release.charged:
            for event in release.events:
                if event.relation == relation:
                    found[event.kind] += spending([event])
    table: dict[str, dict[str, Any]] = {}
    for kind, one in sorted(found.items()):
        epsilon, delta = basic(one)
        table[kind] = {"events": one.total(), "epsilon": show(epsilon), "delta": show(delta)}
    return table


def _state(link: str, history: list[Release]) -> str:
    """Changes whenever a number of the summary may change: the link stands for all that never changes."""
    return json.dumps([_FORM, link, [[one.status, one.charged] for one in history]])


def brief(text: str, up: bool = True) -> str:
    """A short form for people: exact where that is short, else rounded up (spent) or down (left).

    >>> brief("0.5"), brief("1/3"), brief("2.279616666667"), brief("0.000001"), brief("2/3000000", up=False)
    ('0.5', '0.3334', '2.2797', '1e-06', '6.666e-07')
    >>> brief("100.000001"), brief("1234567.891", up=False)
    ('100.01', '1234567.89')
    """
    value = Fraction(text)
    if len(text) <= 6 and "/" not in text:
        return text
    digits = 2 if value >= 100 else 4
    while 0 < value < 100 and value * 10 ** (digits - 3) < 1:
        digits += 1
    scaled = value * 10**digits
    rounded = Fraction(math.ceil(scaled) if up else math.floor(scaled), 10**digits)
    return show(rounded) if rounded >= Fraction(1, 1000) else f"{float(rounded):.6g}"
