"""Composition: what many events cost together, by one of three rules that a data set is given once.

`basic`. The sum of all ε at the sum of all δ, in exact rationals (Kamath, Lecture "Sparse Vector", basic
composition; Dwork and Roth 2014, Theorem 3.16). It holds for any adaptive choice of mechanisms *and* of their
parameters.

`filter`, the default. Sums, or sums of squares against an allowance, whichever admits more: holds for adaptive
choices too, and admits more of many small releases. The proof is in `filters`. A tenth of δ pays for it.

`best`. Sums, or privacy loss distributions by Google's dp-accounting. Every (ε, δ)-DP mechanism is dominated by
randomized response with the same (ε, δ) (Kairouz, Oh, Viswanath 2015, Theorem 3.2), and a composition is
dominated by the composition of dominating pairs, also where each mechanism is chosen after the outputs of
those before it (Zhu, Dong, Wang 2022, Theorem 10). So we compose randomized responses and read off ε at the
budget's δ. It admits most, and *needs that the parameters of the releases do not follow from earlier outputs*,
as with a schedule: an adversary who chooses each ε after seeing outputs gets above twice the δ (a test has
one). `CONDITIONS` says so wherever the number is shown.

All rounding is against ourselves:

    ε of an event   rounded up to a multiple of a power of two, so that both of its losses ±ε lie on the grid
                    of the distribution and nothing else is rounded; dp-accounting's own sums are pessimistic
    δ of an event   leaves the convolution: 1 − Π(1 − δ_i) ≤ Σδ_i, which is taken from the budget's δ
    δ asked for     lowered by 1/1000 and by 1e-11, far above what the float transforms can be off
    ε read off      rounded up to a multiple of 1e-9, and by one such step more
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from hushgram.accounting.events import Event, Spending, spending
from hushgram.accounting.filters import COMPOSITION_SHARE, allowance, epsilon_of
from hushgram.errors import ParameterError
from hushgram.numbers import Number, rational, rational_delta, show

__all__ = ["CONDITIONS", "Budget", "Rule", "Total", "fits", "further", "largest_scale", "total"]

Rule: TypeAlias = Literal["filter", "basic", "best"]

CONDITIONS: Mapping[str, str] = MappingProxyType(
    {
        "filter": "the budget holds also where each release and its ε are chosen after seeing earlier ones",
        "basic": "the budget holds also where each release and its ε are chosen after seeing earlier ones",
        "best": "the budget holds ONLY where ε, δ and number of the releases do not follow from earlier outputs",
    }
)
"""What must be true of how releases are chosen, for each rule."""

_POINTS = 1 << 18
"""Grid points for the sum of all ε: 1,000 events of one ε are then rounded up by less than 0.4 %."""
_GROUPS = 48
"""Distinct ε that are convolved one by one; more are rounded up until so few are left: a sum takes < 1 s."""
_LEAST_DELTA = Fraction(1, 10**10)
"""Below this, the float transforms of a distribution are no proof any more: basic composition alone."""
_SLACK_SHARE, _SLACK = Fraction(1, 1000), Fraction(1, 10**11)
_SEARCH_LIMIT = 1000
_CLEARLY = Fraction(99, 100)
"""Sums that fit are quoted, being exact and at a smaller δ, unless distributions are better by one in 100."""


@dataclass(frozen=True)
class Budget:
    """What a data set may spend in all: (ε, δ)-DP, and by which proof it is counted.

    >>> Budget("10", "1e-6")
    Budget(ε = 10, δ = 0.000001, filter)
    """

    epsilon: Fraction
    delta: Fraction
    rule: Rule = "filter"

    def __init__(self, epsilon: Number, delta: Number = 0, rule: Rule = "filter") -> None:
        loss, slack = rational(epsilon, "epsilon", "Budget"), rational_delta(delta, "Budget")
        if loss <= 0:
            raise ParameterError(f"Budget: epsilon must be above 0, got {show(loss)}")
        if rule not in CONDITIONS:
            raise ParameterError(f"Budget: composition must be {', '.join(CONDITIONS)}, got {rule!r}")
        for name, value in (("epsilon", loss), ("delta", slack), ("rule", rule)):
            object.__setattr__(self, name, value)

    @property
    def composition_delta(self) -> Fraction:
        """The part of δ that pays for composition and is not for the δ of events."""
        return self.delta * COMPOSITION_SHARE if self.rule == "filter" else Fraction(0)

    @property
    def allowance(self) -> Fraction:
        """What half the sum of all ε² may be; 0 where the rule has no such sum."""
        return allowance(self.epsilon, self.composition_delta) if self.composition_delta else Fraction(0)

    def __repr__(self) -> str:
        return f"Budget(ε = {show(self.epsilon)}, δ = {show(self.delta)}, {self.rule})"


@dataclass(frozen=True)
class Total:
    """What was spent, and how it was counted.

    `basic_epsilon` and `basic_delta` are exact sums. `better_epsilon` is an upper bound on ε by the other proof
    of the budget's rule, or None where it has none (the budget's δ is 0, or used up by that of the events).
    `epsilon` at `delta` is the bound to quote: the smaller of the two that hold at the budget's δ.
    """

    basic_epsilon: Fraction
    basic_delta: Fraction
    better_epsilon: Fraction | None
    epsilon: Fraction
    delta: Fraction
    proof: Literal["sums", "squares", "distributions"]


def total(events: Iterable[Event] | Spending, budget: Budget) -> Total:
    """The composition of the events under the budget's δ and rule.

    >>> total([Event("laplace", "0.1")] * 30, Budget(3)).epsilon
    Fraction(3, 1)
    """
    spent = _counted(events)
    epsilon, delta = basic(spent)
    better: Fraction | None = None
    if budget.rule == "best":
        better, at = pld_epsilon(spent, budget.delta), budget.delta
    elif budget.composition_delta:
        better, at = epsilon_of(_squares(spent), budget.composition_delta), delta + budget.composition_delta
    within = epsilon <= budget.epsilon and delta <= budget.delta
    enough = epsilon * _CLEARLY if within else epsilon
    if better is not None and better < enough:
        proof: Literal["squares", "distributions"] = "distributions" if budget.rule == "best" else "squares"
        return Total(epsilon, delta, better, better, at, proof)
    return Total(epsilon, delta, better, epsilon, delta, "sums")


def fits(events: Iterable[Event] | Spending, budget: Budget) -> bool:
    """Whether the events together stay within the budget. The cheap proof is tried first."""
    spent = _counted(events)
    epsilon, delta = basic(spent)
    if delta > budget.delta - budget.composition_delta:
        return False
    if epsilon <= budget.epsilon:
        return True
    if budget.rule == "best":
        by_loss = pld_epsilon(spent, budget.delta)
        return by_loss is not None and by_loss <= budget.epsilon
    return _squares(spent) <= budget.allowance


def further(spent: Iterable[Event] | Spending, release: Sequence[Event], budget: Budget) -> int:
    """How many more such releases fit beside what is spent (counted to 1,000 at most).

    >>> further([], [Event("laplace", "0.1")], Budget(3))
    30
    """
    before, one = _counted(spent), spending(release)
    if not one:
        return _SEARCH_LIMIT
    return _last(lambda n: fits(_plus(before, one, n), budget), _SEARCH_LIMIT)


def largest_scale(spent: Iterable[Event] | Spending, release: Sequence[Event], budget: Budget) -> Fraction:
    """A share of this release's ε that would still fit: exact by sums, else in steps of 1/32.

    0 where nothing would.

    >>> largest_scale([Event("laplace", "2.5")], [Event("laplace", "1")], Budget(3))
    Fraction(1, 2)
    """
    before = _counted(spent)

    def allowed(steps: int) -> bool:
        return fits(_plus(before, spending(e.scaled(Fraction(steps, 32)) for e in release), 1), budget)

    (epsilon, delta), (more, slack) = basic(before), basic(spending(release))
    by_sums = Fraction(0)
    if more and delta + slack <= budget.delta - budget.composition_delta:
        by_sums = min(Fraction(1), max(Fraction(0), (budget.epsilon - epsilon) / more))
    return max(by_sums, Fraction(_last(allowed, 32), 32))


def basic(spent: Spending) -> tuple[Fraction, Fraction]:
    """The exact sums of ε and δ."""
    epsilon = sum((e * n for (e, _), n in spent.items()), Fraction(0))
    delta = sum((d * n for (_, d), n in spent.items()), Fraction(0))
    return epsilon, delta


def _squares(spent: Spending) -> Fraction:
    """Σ ε²/2."""
    return sum((e * e * n for (e, _), n in spent.items()), Fraction(0)) / 2


def pld_epsilon(spent: Spending, delta: Fraction) -> Fraction | None:
    """An upper bound on ε at `delta` by composed privacy loss distributions; None where none can be given."""
    left = delta - basic(spent)[1]
    left -= max(left * _SLACK_SHARE, _SLACK)
    if delta < _LEAST_DELTA or left <= 0:
        return None
    losses: Counter[Fraction] = Counter()
    for (epsilon, _), count in spent.items():
        if epsilon:
            losses[epsilon] += count
    if not losses:
        return Fraction(0)
    return _composed(frozenset(losses.items()), left)


@lru_cache(maxsize=4096)
def _composed(losses: frozenset[tuple[Fraction, int]], delta: Fraction) -> Fraction | None:
    """ε of the composition of pure events at `delta`, from dp-accounting; cached: a search asks again."""
    steps, unit = _on_grid(losses)
    pld: Any = None
    for step, count in sorted(steps.items()):
        part = _randomized_response(step * unit, unit).self_compose(count)
        pld = part if pld is None else pld.compose(part)
    found = pld.get_epsilon_for_delta(math.nextafter(float(delta), 0.0))
    return None if not math.isfinite(found) else Fraction(math.ceil(found * 10**9) + 1, 10**9)


def _on_grid(losses: frozenset[tuple[Fraction, int]]) -> tuple[Counter[int], float]:
    """Every ε rounded up to whole steps of a power of two, with few distinct values left."""
    whole = sum((epsilon * count for epsilon, count in losses), Fraction(0))
    unit = Fraction(2) ** math.ceil(math.log2(whole / _POINTS))
    exact = Counter[int]()
    for epsilon, count in losses:
        exact[math.ceil(epsilon / unit)] += count
    steps, bits = exact, 12
    while len(steps) > _GROUPS:
        steps = Counter()
        for step, count in exact.items():
            coarse = 1 << max(0, step.bit_length() - bits)
            steps[-(-step // coarse) * coarse] += count
        bits -= 1
    return steps, float(unit)


def _randomized_response(epsilon: float, unit: float) -> Any:
    from dp_accounting.pld import common, privacy_loss_distribution  # loads SciPy: 1 to 2 s

    return privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(epsilon, 0.0), value_discretization_interval=unit
    )


def _counted(events: Iterable[Event] | Spending) -> Spending:
    return events if isinstance(events, Counter) else spending(events)


def _plus(before: Spending, one: Spending, times: int) -> Spending:
    after = Counter(before)
    for cost, count in one.items():
        after[cost] += count * times
    return after


def _last(allowed: Callable[[int], bool], limit: int) -> int:
    """The largest n ≤ limit with allowed(n), where false stays false; by doubling, then halving."""
    low, high = 0, 1
    while high <= limit and allowed(high):
        low, high = high, high * 2
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low
