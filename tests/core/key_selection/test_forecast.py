"""Forecasts of key selection by weights, beside simulated selections; the limit of any method."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from fractions import Fraction

import numpy as np
import pytest

from hushgram.key_selection import forecast
from hushgram.key_selection.forecast import KeysPerUser, SelectionForecast, most_chances, users_for_half
from hushgram.key_selection.rounds import SelectionPlan
from hushgram.key_selection.weighted import WHOLE, Round
from hushgram.sparse_histogram import share_choice
from hushgram.sparse_histogram.contribution_bounds import UserTotals

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


#: What a release may divide ε by. Noise follows from it, so every machine has to find the same floats.
DECIDING = (
    share_choice.best_branch, share_choice._loss, UserTotals.likely, KeysPerUser.mean_weight,
    SelectionForecast.__init__, SelectionForecast.chances, SelectionForecast._open, SelectionForecast._reaches,
    forecast.dot, forecast.normal_tails, forecast.spread_ranks, forecast.zipf_shares, forecast.zipf_exponent,
    forecast._exponentials, forecast._logarithms,
)  # fmt: skip
#: Functions of numbers that round correctly by IEEE 754, or are of whole numbers, and those of decimals.
SAME_EVERYWHERE = {
    "abs", "append", "array", "asarray", "astype", "diff", "exp", "fsum", "index", "len", "ln", "max", "maximum", "min",
    "minimum", "range", "round", "sqrt", "tolist", "where", "zeros_like",
}  # fmt: skip


def unsure(source: str) -> list[str]:
    """What of these functions may differ from machine to machine: sums of any order, powers, functions of libraries."""
    found = []
    for node in ast.walk(ast.parse(textwrap.dedent(source))):
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            found.append("@")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            exponent = node.right
            if not (isinstance(exponent, ast.Constant) and isinstance(exponent.value, int)):
                found.append("**")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            library = isinstance(of, ast.Name) and of.id in ("np", "math")
            decimal = isinstance(of, ast.Call) and getattr(of.func, "id", "") == "Decimal"
            name = node.func.attr
            if name in ("exp", "ln") and not decimal:
                found.append(name)
            if name in ("sum", "mean", "dot", "prod") or (library and name not in SAME_EVERYWHERE):
                found.append(name)
    return found


def test_what_divides_epsilon_is_the_same_on_every_machine() -> None:
    for function in DECIDING:
        assert unsure(inspect.getsource(function)) == [], function
    assert unsure("x = float(a @ b) + np.exp(c).sum() + math.erfc(1) + a ** -s + a ** (1 / 4)") != []
    # the numbers themselves, on whatever machine this runs
    assert forecast.zipf_exponent(10**6, 12 * 10**6).hex() == "0x1.f2a2f79888000p-1"
    assert forecast.normal_tails(np.array([-1.5, 0.0, 2.5, 30.0, 99.0])).tolist() == [
        0.9331927980409356,
        0.5000000150000002,
        0.006209664974209641,
        4.906713408680084e-198,
        0.0,
    ]


def test_tails_are_near_those_of_the_normal_distribution() -> None:
    x = np.linspace(-8, 30, 500)
    exact = [0.5 * math.erfc(each / math.sqrt(2)) for each in x.tolist()]
    assert forecast.normal_tails(x) == pytest.approx(np.array(exact), rel=1.2e-7)
    ranks = forecast.spread_ranks(10**6, 400)
    assert (ranks[0], ranks[-1]) == (1, 10**6)
    assert 250 <= len(ranks) <= 500
    assert (np.diff(ranks) > 0).all()
    assert forecast.spread_ranks(1, 400).tolist() == [1]
    assert forecast.zipf_exponent(10**6, 12 * 10**6) == pytest.approx(0.9739, rel=1e-4)
