"""Whether a release fits the budget of its data set, and what to say where it does not."""

from __future__ import annotations

from collections.abc import Sequence

from hushgram.accounting import Budget, Event, fits, largest_scale, spending
from hushgram.accounting.composition import basic
from hushgram.errors import BudgetExceeded
from hushgram.ledger.records import Dataset, Spent
from hushgram.numbers import show

__all__ = ["allowed", "exceeded"]


def allowed(budget: Budget, spent: Spent, wanted: Sequence[Event], users: str | None) -> bool:
    """Whether every user whom the events touch stays within the budget."""
    after = spent.with_events(spending(wanted), users)
    return all(fits(world, budget) for world in after.touched_by(users).values())


def exceeded(dataset: Dataset, spent: Spent, wanted: Sequence[Event], users: str | None) -> BudgetExceeded:
    """The refusal, with what would fit instead."""
    epsilon, delta = basic(spending(wanted))
    worlds = spent.touched_by(users).values()
    share = min(largest_scale(world, wanted, dataset.budget) for world in worlds)
    budget = dataset.budget
    need = f"ε = {show(epsilon)}" + (f", δ = {show(delta)}" if delta else "")
    have = f"ε = {show(budget.epsilon)}, δ = {show(budget.delta)}"
    if share:
        remedy = f"the same release at ε = {show(epsilon * share)} would fit"
    elif delta > budget.delta - budget.composition_delta - max(basic(world)[1] for world in worlds):
        remedy = "its δ is too large for what is left; a release with δ = 0 may fit"
        if budget.composition_delta:
            remedy += f" (of the budget's δ, {show(budget.composition_delta)} is kept for composition)"
    else:
        remedy = "nothing of this kind fits any more"
    return BudgetExceeded(
        f"data set {dataset.name}: the release needs {need}, and with what is spent that exceeds the budget "
        f"of {have}; {remedy}. No data was read, nothing was charged. See `hushgram ledger show`"
    )
