"""Composition against the exact one: never below the truth, and close above it.

The exact δ at a given ε of composed randomized responses is a finite sum (Kairouz, Oh, Viswanath 2015): each
event's privacy loss is +ε_i with probability e^ε_i/(1 + e^ε_i), else −ε_i, and
δ(ε) = E[max(0, 1 − e^(ε − loss))]. It is computed here with 60 digits, by counting or by enumeration.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import binomial, exp, mp, mpf

from hushgram.accounting import Budget, Event, composition, fits, further, largest_scale, spending, total
from hushgram.errors import ParameterError

TENTH = Event("laplace", "0.1")
mp.dps = 60


def exact_delta_equal(epsilon: Fraction, one: Fraction, count: int) -> mpf:
    """δ(ε) of `count` events of the same ε."""
    at, loss = mpf(epsilon.numerator) / epsilon.denominator, mpf(one.numerator) / one.denominator
    high = 1 / (1 + exp(-loss))
    return sum(
        binomial(count, j) * high**j * (1 - high) ** (count - j) * (1 - exp(at - (2 * j - count) * loss))
        for j in range(count + 1)
        if (2 * j - count) * loss > at
    )


def exact_delta(epsilon: Fraction, events: Sequence[Fraction]) -> mpf:
    """δ(ε) of a few different events, by enumeration of all signs."""
    at = mpf(epsilon.numerator) / epsilon.denominator
    losses = [mpf(e.numerator) / e.denominator for e in events]
    found = mpf(0)
    for signs in itertools.product((1, -1), repeat=len(losses)):
        loss = sum(s * e for s, e in zip(signs, losses, strict=True))
        if loss > at:
            chance = math.prod(1 / (1 + exp(-s * e)) for s, e in zip(signs, losses, strict=True))
            found += chance * (1 - exp(at - loss))
    return found


def honest(epsilon: Fraction, one: Fraction, count: int, delta: Fraction) -> bool:
    """Whether a declared ε is true for `count` events at `delta`."""
    return bool(exact_delta_equal(epsilon, one, count) <= mpf(delta.numerator) / delta.denominator)


@pytest.mark.parametrize("count", [1, 2, 10, 46, 300])
@pytest.mark.parametrize("one", ["0.1", "0.01", "1/3", "1"])
@pytest.mark.parametrize("delta", ["1e-6", "1e-9"])
def test_declared_loss_is_true_and_tight(count: int, one: str, delta: str) -> None:
    loss, slack = Fraction(one), Fraction(delta)
    found = composition.pld_epsilon(spending([Event("laplace", one)] * count), slack)
    assert found is not None
    assert honest(found, loss, count, slack)
    # and 1.5 % (or, with one or two events, nearly all of it) less would be a lie
    if found > loss:
        assert not honest(found * Fraction(985, 1000) - Fraction(1, 1000), loss, count, slack)


def test_the_check_rejects_optimistic_accounting() -> None:
    """Broken twins: one event forgotten, the grid rounded down, Laplace counted at half."""
    delta = Fraction(1, 10**6)
    one_less = composition.pld_epsilon(spending([TENTH] * 58), delta)
    rounded_down = composition.pld_epsilon(spending([Event("laplace", "0.098")] * 60), delta)
    halved = composition.pld_epsilon(spending([Event("laplace", "0.05")] * 60), delta)
    for wrong in (one_less, rounded_down, halved):
        assert wrong is not None
        assert not honest(wrong, Fraction(1, 10), 60, delta)


@given(
    st.lists(st.fractions(min_value=Fraction(1, 50), max_value=2, max_denominator=97), min_size=1, max_size=9)
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_different_events_together_are_never_understated(losses: list[Fraction]) -> None:
    delta = Fraction(1, 10**5)
    found = composition.pld_epsilon(spending([Event("alp", e) for e in losses]), delta)
    assert found is not None
    assert exact_delta(found, losses) <= mpf(1) / 10**5
    assert total([Event("alp", e) for e in losses], Budget(10, delta, "best")).epsilon <= sum(losses)


def test_rounding_to_few_groups_is_upwards() -> None:
    many = frozenset((Fraction(n, 1009), 1) for n in range(1, 400))
    steps, unit = composition._on_grid(many)
    assert len(steps) <= 48
    assert steps.total() == len(many)
    rounded = sorted(step for step, count in steps.items() for _ in range(count))
    assert all(step * Fraction(unit) >= e for step, (e, _) in zip(rounded, sorted(many), strict=True))


def test_own_delta_of_events_is_taken_from_the_budget() -> None:
    events = [Event("threshold", "0.1", "1e-7")] * 5
    with_delta = composition.pld_epsilon(spending(events), Fraction(1, 10**6))
    without = composition.pld_epsilon(spending([TENTH] * 5), Fraction(1, 2 * 10**6))
    assert with_delta is not None
    assert with_delta == without
    assert composition.pld_epsilon(spending(events * 2), Fraction(1, 10**6)) is None
    assert not fits(events * 2 + [Event("threshold", "0.1", "1e-7")], Budget(100, "1e-6"))


def test_bar_more_laplace_releases_than_basic_composition_allows() -> None:
    """At least 1.5 times as many (0.1, 0) releases under (3, 1e-6)."""
    by_sums = further([], [TENTH], Budget(3, "1e-6", "basic"))
    by_loss = further([], [TENTH], Budget(3, "1e-6", "best"))
    assert by_sums == 30
    assert by_loss >= 45
    assert honest(Fraction(3), Fraction(1, 10), by_loss, Fraction(1, 10**6))
    assert not honest(Fraction(3), Fraction(1, 10), by_loss + 1, Fraction(1, 10**6))  # not one was given away


def test_better_of_the_two_is_chosen() -> None:
    few = total([Event("laplace", 1)], Budget(3, "1e-6", "best"))
    assert (few.proof, few.epsilon, few.delta) == ("sums", 1, 0)
    many = total([TENTH] * 40, Budget(3, "1e-6", "best"))
    assert many.proof == "distributions"
    assert many.epsilon < many.basic_epsilon == 4
    assert many.delta == Fraction(1, 10**6)
    assert total([TENTH] * 40, Budget(3, "1e-6", "basic")).epsilon == 4
    for rule in ("best", "filter"):
        assert total([TENTH] * 40, Budget(3, 0, rule)).better_epsilon is None  # type: ignore[arg-type]
    assert total([TENTH] * 40, Budget(3, "1e-12", "best")).proof == "sums"
    squares = total([Event("laplace", "0.01")] * 1000, Budget(3, "1e-6"))
    assert (squares.proof, squares.delta) == ("zcdp", Fraction(1, 10**7))
    assert squares.epsilon < 3 < squares.basic_epsilon


def test_basic_sums_are_exact() -> None:
    assert fits([TENTH] * 30, Budget(3))
    assert not fits([TENTH] * 30 + [Event("rr", "1e-90")], Budget(3))
    assert fits([Event("threshold", "1/3", "1/3000000")] * 3, Budget(1, "1e-6", "basic"))
    assert not fits([Event("threshold", "1/3", "1/3000000")] * 3, Budget(1, "1e-6"))  # a tenth is kept


def test_what_would_fit() -> None:
    assert largest_scale([Event("laplace", "2.7")], [Event("laplace", 1)], Budget(3)) == Fraction(3, 10)
    assert largest_scale([Event("laplace", 3)], [Event("laplace", 1)], Budget(3)) == 0
    part = largest_scale([TENTH] * 44, [Event("laplace", 1)], Budget(3, "1e-6", "best"))
    assert 0 < part < 1
    after = Counter(spending([TENTH] * 44)) + spending([Event("laplace", part)])
    assert fits(after, Budget(3, "1e-6", "best"))


def test_importing_accounting_does_not_load_scipy() -> None:
    import subprocess
    import sys

    code = "import sys, hushgram.accounting as a; a.total([a.Event('rr', 1)], a.Budget(3)); " + (
        "assert not {'scipy', 'dp_accounting'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("arguments", "field"), [((0,), "epsilon"), ((1, 1), "delta"), ((1, 0, "worst"), "composition")]
)
def test_wrong_budgets_are_refused(arguments: tuple[object, ...], field: str) -> None:
    with pytest.raises(ParameterError, match=field):
        Budget(*arguments)  # type: ignore[arg-type]
