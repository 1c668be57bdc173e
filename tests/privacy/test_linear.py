"""Randomized response: the flip probability is exactly 1/(1 + e^ε₀), and each record's loss exactly ε."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from hushgram.mechanisms.randomized_response.mechanism import (
    RandomizedResponseParams,
    answer,
    privacy_map,
    randomize,
)
from hushgram.noise.entropy import ReleaseKey
from tests.statistics import fits

KEY = ReleaseKey(bytes(range(32)))


def exact_flip(params):
    """p from its digits: what the sampler compares with."""
    digits = params.probability
    return Fraction(int.from_bytes(bytes(digits.byte(i) for i in range(24)), "big"), 256**24)


@pytest.mark.parametrize(("epsilon", "secrets"), [("1", 1), ("0.1", 1), ("2", 3), ("8", 1)])
def test_digits_of_the_flip_probability(epsilon, secrets):
    import mpmath

    params = RandomizedResponseParams(epsilon, secrets=secrets)
    with mpmath.workprec(300):
        rate = mpmath.mpf(params.bit_epsilon.numerator) / params.bit_epsilon.denominator
        p = 1 / (1 + mpmath.exp(rate))
        assert abs(p * 256**24 - int(exact_flip(params) * 256**24)) < 1
    assert params.flip == pytest.approx(float(exact_flip(params)), rel=1e-12)


@pytest.mark.parametrize("epsilon", ["0.25", "1", "3"])
@pytest.mark.parametrize("bit", [False, True])
def test_flips_have_the_stated_rate(epsilon, bit):
    params = RandomizedResponseParams(epsilon)
    secret = np.full(200_003, bit)
    flipped = randomize(secret, params, KEY.source(f"flips {epsilon} {bit}")) != secret
    assert fits(flipped.astype(int), {1: params.flip, 0: 1 - params.flip})
    for wrong in (params.flip * 1.1, params.flip / 1.1):  # power
        assert not fits(flipped.astype(int), {1: wrong, 0: 1 - wrong})


def loss(flip, bits):
    """max ln P[Y | x]/P[Y | x'] over all records of some bits: enumerated."""
    worst = 0.0
    for x, other in itertools.product(itertools.product((0, 1), repeat=bits), repeat=2):
        for y in itertools.product((0, 1), repeat=bits):
            here = math.prod(flip if a != b else 1 - flip for a, b in zip(x, y, strict=True))
            there = math.prod(flip if a != b else 1 - flip for a, b in zip(other, y, strict=True))
            worst = max(worst, math.log(here / there))
    return worst


@pytest.mark.parametrize("secrets", [1, 2, 3])
def test_loss_of_a_record_is_epsilon(secrets):
    params = RandomizedResponseParams("1.5", secrets=secrets)
    assert loss(float(exact_flip(params)), secrets) == pytest.approx(1.5, rel=1e-9)
    assert privacy_map(params, secrets) == Fraction(3, 2)


def test_broken_twin_epsilon_for_each_bit_of_three():
    assert loss(RandomizedResponseParams("1.5").flip, 3) > 4


def test_neighbouring_bits_are_flipped_independently():
    params = RandomizedResponseParams(1)
    flipped = randomize(np.zeros(200_000, bool), params, KEY.source("pairs")).astype(int)
    for lag in (1, 8, 64):
        pairs = flipped[: -lag or None : 2 * lag]
        other = flipped[lag :: 2 * lag]
        size = min(len(pairs), len(other))
        p = params.flip
        law = {0: (1 - p) ** 2, 1: p * (1 - p), 2: p * (1 - p), 3: p * p}
        assert fits(2 * pairs[:size] + other[:size], law)


def test_intervals_cover_and_answers_are_unbiased():
    params = RandomizedResponseParams(1)
    rng = np.random.default_rng(3)
    secret = rng.random(400) < 0.3
    weights = np.round(rng.random(400), 3)
    truth = float(weights[secret].sum())
    told = [answer(randomize(secret, params, KEY.source("cover", i)), weights, params) for i in range(1000)]
    covered = sum(a.low <= truth <= a.high for a in told)
    assert covered >= 950
    values = np.array([a.estimate for a in told])
    spread = math.sqrt(float((weights**2).sum()) * params.flip * (1 - params.flip)) / (1 - 2 * params.flip)
    assert abs(values.mean() - truth) < 5.4 * spread / math.sqrt(1000)  # false alarm 7e-8
    assert values.std() == pytest.approx(spread, rel=0.15)
    # Power: an answer that forgets to undo the flips is seen.
    raw = [float(weights[randomize(secret, params, KEY.source("cover", i))].sum()) for i in range(100)]
    assert abs(np.mean(raw) - truth) > 5.4 * spread / math.sqrt(100)
