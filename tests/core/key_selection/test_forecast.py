"""Forecasts of key selection by weights, beside simulated selections; the limit of any method."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hushgram.key_selection import forecast
from hushgram.key_selection.forecast import KeysPerUser, SelectionForecast, most_chances, users_for_half
from hushgram.key_selection.rounds import SelectionPlan
from hushgram.key_selection.weighted import WHOLE, Round

ONE_KEY = KeysPerUser(np.array([1_000.0]), np.array([1.0]))
PLAN = SelectionPlan(100, (Round(Fraction(5 * WHOLE), 25 * WHOLE),))


def test_users_with_one_key_give_it_all_their_weight() -> None:
    found = SelectionForecast(PLAN, ONE_KEY, np.array([25.0, 100.0]), np.array([10.0, 3.0]))
    assert found.chances(np.array([25.0])) == pytest.approx(0.5)
    assert found.named == pytest.approx(10 * 0.5 + 3, abs=0.01)
    assert found.users_for_half() == 25


def test_users_needed_grow_with_the_root_of_keys_per_user() -> None:
    for keys, needed in ((16.0, 100), (100.0, 250), (400.0, 1_000)):  # of 400 keys a quarter is weighed
        people = KeysPerUser(np.array([1_000.0]), np.array([keys]))
        found = SelectionForecast(PLAN, people, np.array([1.0]), np.array([1.0]))
        assert found.users_for_half() == pytest.approx(needed, rel=0.03)
    assert KeysPerUser(np.array([3.0, 1.0]), np.array([2.0, 6.0])).mean == 3.0


def test_further_rounds_give_what_others_do_not_need_to_the_middle() -> None:
    """Users with 50 keys, most of them hopeless: in later rounds the weight of the others is larger."""
    first, last = Round(Fraction(10 * WHOLE), 60 * WHOLE), PLAN.rounds[0]
    plans = (
        PLAN,
        SelectionPlan(100, (first, last), (10 * WHOLE,)),
        SelectionPlan(100, (first, first, last), (10 * WHOLE, 20 * WHOLE)),
    )
    people = KeysPerUser(np.array([1_000.0]), np.array([50.0]))
    users, keys = np.array([1.0, 30.0, 120.0]), np.array([40_000.0, 100.0, 30.0])
    one, two, three = (SelectionForecast(plan, people, users, keys) for plan in plans)
    assert min(two.chances(users)[2], three.chances(users)[2]) > 2 * one.chances(users)[2]
    for each in (one, two, three):
        assert each.named == pytest.approx(keys @ each.chances(users))
    assert three.chances(np.array([1e6])) == pytest.approx(1.0)


def test_no_method_passes_the_limit() -> None:
    at = users_for_half(0.5, 1e-5)
    assert most_chances(np.array([0.0, at, 1e6]), 0.5, 1e-5) == pytest.approx([0.0, 0.5, 1.0])
    chance = 0.0
    for users in range(1, 10):  # one user more: e^ε·p + δ at most
        chance = chance * np.exp(0.5) + 1e-5
        assert most_chances(np.array([float(users)]), 0.5, 1e-5) == pytest.approx(chance)


def test_the_exponent_is_that_of_a_law_whose_rarest_key_has_one_record() -> None:
    for keys, records in ((10**6, 12 * 10**6), (50, 51), (30, 10**5), (2_000, 400_000)):
        s = forecast.zipf_exponent(keys, records)
        shares = np.arange(1.0, keys + 1) ** -s
        assert records * shares[-1] / shares.sum() == pytest.approx(1.0, rel=0.01)


def test_tails_are_near_those_of_the_normal_distribution() -> None:
    x = np.linspace(-8, 30, 500)
    exact = [0.5 * math.erfc(each / math.sqrt(2)) for each in x.tolist()]
    assert forecast.normal_tails(x) == pytest.approx(np.array(exact), rel=1.2e-7)
