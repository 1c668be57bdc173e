"""Whether a release fits the budget of its data set, and what to say where it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from hushgram.accounting import RELATIONS, Budget, Event, Spending, fits, largest_scale, spending
from hushgram.accounting.composition import basic
from hushgram.errors import BudgetExceeded, LedgerError
from hushgram.exact.partition import UserPart
from hushgram.ledger.chain import Account
from hushgram.ledger.records import PART_BY, Dataset, Request, Spent
from hushgram.numbers import show

__all__ = ["allowed", "check_part", "exceeded"]


def check_part(account: Account, request: Request) -> None:
    """Refuses a part of another modulo, or by another `input.user`, than those before it: they share users."""
    if request.users is None:
        return
    dataset, by = request.dataset, request.parameters[PART_BY]
    wanted = UserPart.parse(dataset, request.users)
    for row in account.releases:
        if not row["charged"] or row["users"] is None:
            continue
        before, before_by = UserPart.parse(dataset, row["users"]), json.loads(row["parameters"]).get(PART_BY)
        if before_by != by:
            raise LedgerError(
                f"data set {dataset} has releases on {before.name} by input.user: {before_by or 'not recorded'}, which "
                f"may share users with {wanted.name} by input.user: {by}; write input.user as before, or leave "
                "user_partition out"
            )
        if before.modulo != wanted.modulo:
            raise LedgerError(
                f"data set {dataset} has releases on {before.name}, which shares users with {wanted.name}; "
                f"write user_partition: {{modulo: {before.modulo}, …}}, or leave it out"
            )


def allowed(budget: Budget, spent: Mapping[str, Spent], wanted: Sequence[Event], users: str | None) -> bool:
    """Whether every user whom the events touch stays within the budget, for each relation by itself."""
    return all(
        fits(world, budget)
        for relation, events in _by_relation(wanted)
        for world in spent[relation].with_events(spending(events), users).touched_by(users).values()
    )


def exceeded(
    dataset: Dataset, spent: Mapping[str, Spent], wanted: Sequence[Event], users: str | None
) -> BudgetExceeded:
    """The refusal, with what would fit instead."""
    budget = dataset.budget
    relation, events = next(
        (relation, events)
        for relation, events in _by_relation(wanted)
        if not allowed(budget, spent, events, users)
    )
    worlds = list(spent[relation].touched_by(users).values())
    epsilon, delta = basic(spending(events))
    need = f"ε = {show(epsilon)}" + (f", δ = {show(delta)}" if delta else "")
    about = "" if relation == "user" else f" (for {RELATIONS[relation]})"
    have = f"ε = {show(budget.epsilon)}, δ = {show(budget.delta)}"
    return BudgetExceeded(
        f"data set {dataset.name}: the release needs {need}{about}, and with what is spent that exceeds the budget "
        f"of {have}; {_remedy(budget, worlds, events)}. No data was read, nothing was charged. "
        "See `hushgram ledger show`"
    )


def _remedy(budget: Budget, worlds: Sequence[Spending], events: Sequence[Event]) -> str:
    epsilon, delta = basic(spending(events))
    if share := min(largest_scale(world, events, budget) for world in worlds):
        return f"the same release at ε = {show(epsilon * share)} would fit"
    if delta > budget.delta - budget.composition_delta - max(basic(world)[1] for world in worlds):
        kept = f" (of the budget's δ, {show(budget.composition_delta)} is kept for composition)"
        more = kept if budget.composition_delta else ""
        return f"its δ is too large for what is left; a release with δ = 0 may fit{more}"
    return "nothing of this kind fits any more"


def _by_relation(wanted: Sequence[Event]) -> Iterator[tuple[str, list[Event]]]:
    for relation in RELATIONS:
        if events := [event for event in wanted if event.relation == relation]:
            yield relation, events
