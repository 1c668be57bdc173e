"""Events: exact, checked, and of a meaning that does not change."""

from __future__ import annotations

from fractions import Fraction

import pytest

from hushgram.accounting import KINDS, Cost, Event, spending
from hushgram.errors import ParameterError

# Written down a second time on purpose: a change of an entry that ledgers may hold must fail here.
PUBLISHED = {
    ("sizing", 1): "discrete Laplace on the number of records and the profile of counts",
    ("threshold", 1): "discrete Laplace on every count, kept from a public threshold on",
    ("alp", 1): "random rounding and randomized response on the bits of an ALP projection",
    ("svt", 1): "sparse vector: which queries are above a threshold",
    ("svt", 2): "sparse vector with one-sided noise: which queries are above a threshold",
    ("pmw", 1): "private multiplicative weights, all rounds of one stream",
    ("laplace", 1): "discrete Laplace on a vector of bounded L1 sensitivity",
    ("rr", 1): "randomized response on one secret bit of each user",
}


def test_published_kinds_keep_their_meaning() -> None:
    assert {key: KINDS[key] for key in PUBLISHED} == PUBLISHED


def test_a_mechanism_from_elsewhere_is_an_event_under_its_own_name() -> None:
    event = Event("toy", "0.1")
    assert (event.kind, event.version, event.meaning) == ("toy", 1, "toy")


def test_numbers_are_exact() -> None:
    event = Event("threshold", "0.1", "1e-6")
    assert (event.epsilon, event.delta) == (Fraction(1, 10), Fraction(1, 10**6))
    assert event.scaled(Fraction(1, 3)).epsilon == Fraction(1, 30)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("La place", "1"), "kind"),
        (("", "1"), "kind"),
        (("x" * 61, "1"), "kind"),
        (("laplace", "-1"), "epsilon"),
        (("laplace", "nan"), "epsilon"),
        (("laplace", "1", "1"), "delta"),
        (("laplace", "1", "-0.1"), "delta"),
        (("laplace", "1", "0", {}, 9), "version 9"),
        (("laplace", "1", "0", {}, 0), "version 0"),
        (("toy", "1", "0", {}, 2), "version 2"),
    ],
)
def test_wrong_events_are_refused_with_the_field(arguments: tuple[object, ...], field: str) -> None:
    with pytest.raises(ParameterError, match=field):
        Event(*arguments)  # type: ignore[arg-type]


def test_spending_counts_equal_costs_of_different_kinds_together() -> None:
    events = [Event("laplace", "0.1"), Event("svt", "0.1"), Event("threshold", "0.1", "1e-9"), Event("rr", 0)]
    assert spending(events) == {
        Cost(Fraction(1, 10), Fraction(0), Fraction(1, 200), Fraction(0)): 2,
        Cost(Fraction(1, 10), Fraction(1, 10**9), Fraction(1, 200), Fraction(1, 10**9)): 1,
    }


def test_event_is_frozen() -> None:
    event = Event("laplace", 1)
    with pytest.raises(AttributeError):
        event.epsilon = Fraction(0)  # type: ignore[misc]
    with pytest.raises(TypeError):
        event.details["x"] = "y"  # type: ignore[index]
