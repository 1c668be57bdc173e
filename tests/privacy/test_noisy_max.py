"""Permute-and-flip: exact distribution, exact privacy loss on all small neighbours, and the broken twins."""

import itertools
import math

import numpy as np
import pytest

from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey
from hushgram.selection.permute_and_flip import NoisyMaxParams, distribution, noisy_max, privacy_map, top
from tests.statistics import fits

KEY = ReleaseKey(bytes(range(32)))
SCORES = [[5, 5], [0, 3, 1], [2, 0, 2, 1], [7, 0, 6, 6, 3]]


def by_permutations(scores, rate):
    """The algorithm as the paper states it: a random order, then coins until one falls."""
    high = max(scores)
    coins = [math.exp(-rate * (high - s)) for s in scores]
    out = [0.0] * len(scores)
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        reached = 1.0
        for r in order:
            out[r] += reached * coins[r] / len(orders)
            reached *= 1 - coins[r]
    return out


def exponential_mechanism(scores, rate):
    weights = [math.exp(-rate * (max(scores) - s)) for s in scores]
    return [w / sum(weights) for w in weights]


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("rate", [0.1, 1.0, 3.0])
def test_closed_form_equals_enumeration(scores, rate):
    assert distribution(scores, rate) == pytest.approx(by_permutations(scores, rate), rel=1e-12)


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("monotone", [True, False])
def test_draws_have_the_closed_form(scores, monotone):
    params = NoisyMaxParams("0.8", sensitivity=2, monotone=monotone)
    source = KEY.source(f"draws {scores} {monotone}")
    draws = [noisy_max(np.array(scores), params, source) for _ in range(4000)]
    assert fits(draws, dict(enumerate(distribution(scores, float(params.rate)))))


def test_power_a_rate_or_a_mechanism_that_is_off_is_seen():
    scores, params = [2, 0, 2, 1, -3], NoisyMaxParams(1, monotone=True)
    source = KEY.source("power")
    draws = [noisy_max(np.array(scores), params, source) for _ in range(16_000)]
    assert fits(draws, dict(enumerate(distribution(scores, 1.0))))
    for wrong in (distribution(scores, 1.3), distribution(scores, 0.7), exponential_mechanism(scores, 1.0)):
        assert not fits(draws, dict(enumerate(wrong)))


def worst(rate, moves, values=range(5), candidates=3):
    """The largest log-ratio over all score vectors and neighbours."""
    loss = 0.0
    for scores in itertools.product(values, repeat=candidates):
        here = distribution(scores, rate)
        for move in moves:
            there = distribution([s + m for s, m in zip(scores, move, strict=True)], rate)
            loss = max(loss, *(abs(math.log(a / b)) for a, b in zip(here, there, strict=True)))
    return loss


UP = list(itertools.product((0, 1), repeat=3))
BOTH = list(itertools.product((-1, 0, 1), repeat=3))


def test_loss_is_epsilon_for_monotone_scores():
    params = NoisyMaxParams(1, monotone=True)
    assert worst(float(params.rate), UP) <= 1 + 1e-12
    assert worst(float(params.rate), UP) > 0.8  # nearly tight: nothing is wasted
    assert privacy_map(params, 1) == 1


def test_loss_is_epsilon_for_any_scores_and_this_is_the_default():
    params = NoisyMaxParams(1)
    assert 0.8 < worst(float(params.rate), BOTH) <= 1 + 1e-12
    assert privacy_map(params, 1) == 1


def test_broken_twin_monotone_rate_on_scores_that_move_both_ways():
    assert worst(float(NoisyMaxParams(1, monotone=True).rate), BOTH) > 1.2


@pytest.mark.parametrize("said", ["no", "yes", 1, 0, None, np.bool_(True)])
def test_monotone_is_declared_by_a_boolean_or_not_at_all(said):
    with pytest.raises(ParameterError, match="monotone must be True or False"):
        NoisyMaxParams(1, monotone=said)


def peeled(scores, rate, count):
    """Exact probabilities of ordered choices."""
    if count == 0:
        return {(): 1.0}
    out = {}
    names = list(range(len(scores)))
    for r, p in zip(names, distribution(scores, rate), strict=True):
        rest = [i for i in names if i != r]
        for tail, q in peeled([scores[i] for i in rest], rate, count - 1).items():
            out[(r, *(rest[i] for i in tail))] = p * q
    return out


def test_peeling_has_the_product_distribution():
    scores, params = [4, 2, 3, 0], NoisyMaxParams(2, count=2)
    source = KEY.source("peel")
    draws = [int(a) * 10 + int(b) for a, b in (top(np.array(scores), params, source) for _ in range(5000))]
    exact = peeled(scores, float(params.rate), 2)
    assert fits(draws, {a * 10 + b: p for (a, b), p in exact.items()})


def peel_loss(rate):
    loss = 0.0
    for scores in itertools.product(range(4), repeat=3):
        here = peeled(scores, rate, 2)
        for move in UP:
            there = peeled([s + m for s, m in zip(scores, move, strict=True)], rate, 2)
            loss = max(loss, *(abs(math.log(here[o] / there[o])) for o in here))
    return loss


def test_peeling_loss_and_its_broken_twin():
    assert peel_loss(float(NoisyMaxParams(1, count=2, monotone=True).rate)) <= 1 + 1e-12
    assert (
        peel_loss(float(NoisyMaxParams(1, count=1, monotone=True).rate)) > 1.2
    )  # epsilon spent anew in each round


def test_expected_error_is_never_above_the_exponential_mechanism():
    rng = np.random.default_rng(5)
    for _ in range(200):
        scores = rng.integers(0, 12, size=rng.integers(2, 7)).tolist()
        rate = float(rng.uniform(0.05, 2))
        gaps = [max(scores) - s for s in scores]
        flip = sum(p * g for p, g in zip(distribution(scores, rate), gaps, strict=True))
        expo = sum(p * g for p, g in zip(exponential_mechanism(scores, rate), gaps, strict=True))
        assert flip <= expo + 1e-12
