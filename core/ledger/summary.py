"""The state of a budget for `hushgram ledger show`: spent, left, and how the sum is computed.

A sum by privacy loss distributions loads SciPy and takes seconds. So the ledger caches the last summary of each data
set with a MAC of it and of everything it depends on, and computes it again only when that has changed; a run computes
it after its commit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sqlalchemy as sa

from hushgram.accounting import CONDITIONS, RELATIONS, Budget, Event, Spending, further, spending, total
from hushgram.accounting.composition import TotalLoss, basic
from hushgram.errors import LedgerError
from hushgram.ledger.hash_chain import Account
from hushgram.ledger.ledger import Ledger
from hushgram.ledger.records import ReleaseRecord, Spent
from hushgram.ledger.store import totals
from hushgram.numbers import show

__all__ = ["FORECAST_LIMIT", "Forecast", "Summary", "brief", "forecast", "more_releases", "summarise"]

FORECAST_LIMIT = 100_000
"""Daily releases for 270 years: a forecast counts no further."""

_CACHE_VERSION = 8
"""Changes with the cached fields, so that an old cache is not read."""


@dataclass(frozen=True)
class Summary:
    """The state of one data set's budget. Numbers are exact texts; `better_epsilon` is an upper bound.

    Spent and left add up to the budget, in ε and in δ.
    """

    dataset: str
    relation: str
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
    last_release: str | None
    last_epsilon: str | None
    more: int | None
    more_basic: int | None
    warning: str | None = None

    def explain(self) -> list[str]:
        """Return the sum in sentences, with the condition under which the budget holds."""
        lines = [f"sums: ε = {brief(self.basic_epsilon)} at δ = {brief(self.basic_delta)} (exact)"]
        name = {"filter": "zCDP (sum of ρ)", "best": "privacy loss distributions"}.get(self.composition)
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
        if self.relation != "user":
            several = "a person with several records loses this once per record"
            lines.append(f"privacy unit: {RELATIONS[self.relation]}; {several}")
        lines.append(f"composition {self.composition}: {CONDITIONS[self.composition]}")
        if self.parts:
            lines.append(
                f"parts of the users are disjoint, so the part with the highest spending counts: {self.worst_part}"
            )
        return lines


def summarise(ledger: Ledger, dataset: str) -> Summary:
    """Return the summary of a data set, from the cache if nothing has changed.

    Args:
        ledger: an open ledger.
        dataset: the name of the data set.
    """
    with ledger.store.read() as connection:
        account = ledger.chain.read(connection, dataset)
        row = connection.execute(sa.select(totals).where(totals.c.dataset == dataset)).one_or_none()
    warning = ledger.rollback_warning(account)
    # all that may change a number: the link stands for everything that never changes
    states = [[one["status"], bool(one["charged"])] for one in account.releases]
    state = json.dumps([_CACHE_VERSION, account.links[-1], states])
    if row is not None and row.stamp == ledger.macs.mac("total", state, row.body):
        return dataclasses.replace(Summary(**json.loads(row.body)), warning=warning)
    summary = _compute(account)
    body = json.dumps(dataclasses.asdict(summary))
    stamp = ledger.macs.mac("total", state, body)
    with contextlib.suppress(LedgerError), ledger.store.write() as connection:  # the cache may stay unwritten
        connection.execute(totals.delete().where(totals.c.dataset == dataset))
        connection.execute(totals.insert().values(dataset=dataset, stamp=stamp, body=body))
    return dataclasses.replace(summary, warning=warning)


def _compute(account: Account) -> Summary:
    budget, history, spends = account.dataset.budget, account.history(), account.spent()
    last = next((release for release in reversed(history) if release.charged), None)
    counted = {name: total(one, budget) for name, one in spends.by_part().items()}
    worst = max(counted, key=lambda name: _size(counted[name]))
    bound = counted[worst]
    sums_only = Budget(budget.epsilon, budget.delta, "basic")
    return Summary(
        dataset=account.dataset.name,
        relation=next(iter(account.relations), "user"),
        budget_epsilon=show(budget.epsilon),
        budget_delta=show(budget.delta),
        composition=budget.rule,
        spent_epsilon=show(bound.epsilon),
        spent_delta=show(bound.delta),
        proof=bound.proof,
        basic_epsilon=show(bound.basic_epsilon),
        basic_delta=show(bound.basic_delta),
        better_epsilon=None if bound.better_epsilon is None else show(bound.better_epsilon),
        left_epsilon=_left(budget.epsilon - bound.epsilon),
        left_delta=_left(budget.delta - bound.delta),
        composition_delta=show(budget.composition_delta),
        event_delta_left=_left(budget.delta - budget.composition_delta - bound.event_delta),
        worst_part=worst,
        parts={str(name): show(one.epsilon) for name, one in counted.items() if name is not None},
        statuses=dict(Counter(release.status for release in history)),
        kinds=_by_kind(history),
        last_release=None if last is None else last.name,
        last_epsilon=None if last is None else show(last.epsilon),
        more=None if last is None else _more(spends, last.events, last.users, budget),
        more_basic=None if last is None else _more(spends, last.events, last.users, sums_only),
    )


def _size(bound: TotalLoss) -> tuple[Fraction, Fraction]:
    return bound.epsilon, bound.delta


def _left(difference: Fraction) -> str:
    return show(max(Fraction(0), difference))


@dataclass(frozen=True)
class Forecast:
    """How many more releases like one of a data set fit its budget, at most `FORECAST_LIMIT`."""

    like: str
    epsilon: Fraction
    delta: Fraction
    count: int


def forecast(ledger: Ledger, dataset: str, like: str | None = None) -> Forecast:
    """Return how long a schedule may go on.

    Args:
        ledger: an open ledger.
        dataset: the name of the data set.
        like: the release that is repeated; the last one that was charged where it is None.
    """
    with ledger.store.read() as connection:
        account = ledger.chain.read(connection, dataset)
    charged = [one for one in account.history() if one.charged and like in (None, one.name)]
    if not charged:
        raise LedgerError(
            f"data set {dataset} has no charged release"
            + (
                " yet; release once"
                if like is None
                else f" {like!r}; see `hushgram ledger history {dataset}`"
            )
        )
    one, budget = charged[-1], account.dataset.budget
    limit = 1000 if budget.rule == "best" else FORECAST_LIMIT  # a distribution per step of the search
    count = _more(account.spent(), one.events, one.users, budget, limit)
    return Forecast(one.name, one.epsilon, one.delta, count)


def more_releases(
    ledger: Ledger, dataset: str, events: Sequence[Event], users: str | None, limit: int
) -> int:
    """Return how many releases of these events fit beside what is spent, counted to ``limit`` at most."""
    with ledger.store.read() as connection:
        account = ledger.chain.read(connection, dataset)
    return _more(account.spent(), events, users, account.dataset.budget, limit)


def _more(
    spent: Spent, release: Sequence[Event], users: str | None, budget: Budget, limit: int = 1000
) -> int:
    """Return how many more such releases fit, for the users with the least left."""
    return min(further(one, release, budget, limit) for one in spent.affected(users).values())


def _by_kind(history: list[ReleaseRecord]) -> dict[str, dict[str, Any]]:
    found: defaultdict[str, Spending] = defaultdict(Counter)
    for release in history:
        for event in release.events if release.charged else ():
            found[event.kind] += spending([event])
    table: dict[str, dict[str, Any]] = {}
    for kind, one in sorted(found.items()):
        epsilon, delta = basic(one)
        table[kind] = {"events": one.total(), "epsilon": show(epsilon), "delta": show(delta)}
    return table


def brief(text: str, up: bool = True) -> str:
    """Return a short form for people: exact if that is short, else rounded up (spent) or down (left).

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
