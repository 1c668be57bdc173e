"""Forecasts of key selection by weights, beside simulated selections; the limit of any method."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

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


def test_a_second_round_gives_what_others_do_not_need_to_the_middle() -> None:
    """Users with 50 keys, most of them hopeless: in the second round the weight of the others is larger."""
    plan = SelectionPlan(100, (Round(Fraction(10 * WHOLE), 60 * WHOLE), PLAN.rounds[0]), 10 * WHOLE)
    people = KeysPerUser(np.array([1_000.0]), np.array([50.0]))
    users, keys = np.array([1.0, 120.0]), np.array([40_000.0, 30.0])
    one, two = (SelectionForecast(each, people, users, keys) for each in (PLAN, plan))
    assert two.chances(users)[1] > 2 * one.chances(users)[1]
    assert two.chances(np.array([1e6])) == pytest.approx(1.0)


def test_no_method_passes_the_limit() -> None:
    at = users_for_half(0.5, 1e-5)
    assert most_chances(np.array([0.0, at, 1e6]), 0.5, 1e-5) == pytest.approx([0.0, 0.5, 1.0])
    chance = 0.0
    for users in range(1, 10):  # one user more: e^ε·p + δ at most
        chance = chance * np.exp(0.5) + 1e-5
        assert most_chances(np.array([float(users)]), 0.5, 1e-5) == pytest.approx(chance)
