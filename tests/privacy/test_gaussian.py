"""What discrete Gaussian noise costs, by exact enumeration on tiny neighbouring inputs."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from hushgram.noise.gaussian import (
    gaussian_delta,
    gaussian_scales,
    unit_shift_delta,
)
from hushgram.noise.zcdp import zcdp_delta
from hushgram.sensitivity import Sensitivity
from tests.statistics import gaussian_pmf


def pmf(scale, reach=None):
    reach = reach or math.ceil(12 * scale) + 4
    return {z: gaussian_pmf(scale, z) for z in range(-reach, reach + 1)}


def losses(scale, shift, reach=None):
    """Arrays of the losses ln P(z)/Q(z), and of P(z), for one count that moves by ``shift``."""
    dist = pmf(scale, reach)
    z = np.array(list(dist), float)
    return ((z + shift) ** 2 - z**2) / (2 * scale**2), np.array(list(dist.values()))


def enumerated_delta(epsilon, moves):
    """Σ max(0, P − e^ε Q) over every outcome of all counts, each (scale, shift)."""
    loss, weight = np.zeros(1), np.ones(1)
    for scale, shift in moves:
        more, share = losses(scale, shift)
        loss, weight = (loss[:, None] + more).ravel(), (weight[:, None] * share).ravel()
    return float(np.sum(weight * np.maximum(-np.expm1(epsilon - loss), 0)))


def summed_delta(epsilon, scales, count):
    """The same for ``count`` unit shifts in each vector: the losses depend on the sums alone, which are convolved."""
    loss, weight = np.zeros(1), np.ones(1)
    for scale in scales:
        one = np.array(list(pmf(scale).values()))
        total = one
        for _ in range(count - 1):
            total = np.convolve(total, one)
        sums = np.arange(len(total)) - len(total) // 2
        more = (2 * sums + count) / (2 * scale**2)
        loss, weight = (loss[:, None] + more).ravel(), (weight[:, None] * total).ravel()
    return float(np.sum(weight * np.maximum(-np.expm1(epsilon - loss), 0)))


def partitions(most, largest):
    """All multisets of parts from 1 to ``largest`` with sum at most ``most``."""
    if largest == 0 or most == 0:
        yield ()
        return
    for times in range(most // largest + 1):
        for rest in partitions(most - times * largest, largest - 1):
            yield (largest,) * times + rest


def test_largest_l2_is_the_worst_split():
    for most, most_per_key in itertools.product(range(1, 13), repeat=2):
        worst = max(sum(c * c for c in parts) for parts in partitions(most, most_per_key))
        assert Sensitivity(most, most_per_key).l2_squared == worst


@pytest.mark.parametrize("scales", [(1.0,), (2.5,), (1.0, 1.0), (2.0, 3.0), (1.5, 1.0)])
@pytest.mark.parametrize("epsilon", ["1/4", "1", "3"])
def test_unit_shifts_are_exact(scales, epsilon):
    """Every outcome of one count a vector, and sums for several: the stated δ is theirs, never below."""
    epsilon = Fraction(epsilon)
    exact = tuple(Fraction(s) for s in scales)
    one = enumerated_delta(float(epsilon), [(s, 1) for s in scales])
    assert one == pytest.approx(summed_delta(float(epsilon), scales, 1), rel=1e-9, abs=1e-15)
    for count in (1, 2, 3, 8):
        truth = summed_delta(float(epsilon), scales, count)
        assert float(gaussian_delta(exact, epsilon, Sensitivity(count, 1))) >= truth * (1 - 1e-9) - 1e-15
        stated = unit_shift_delta(exact, epsilon, count)
        if stated is None:  # too uneven: the concentrated bound alone
            assert count < 8
            continue
        stated = float(stated)
        assert stated >= truth * (1 - 1e-9) - 1e-15
        if min(scales) >= 2 and (count == 8 or len(scales) == 1):  # wide enough: nothing is wasted
            assert stated == pytest.approx(truth, rel=1e-3 if len(scales) == 2 else 1e-9, abs=1e-14)


def test_two_counts_by_plain_enumeration():
    for scales in ((1.5,), (2.0, 3.0)):
        moves = [(scale, 1) for scale in scales for _ in range(2)][:3]  # three of four: never worse than all
        exact = tuple(Fraction(scale) for scale in scales)
        assert float(gaussian_delta(exact, Fraction(1, 2), Sensitivity(2, 1))) >= enumerated_delta(0.5, moves)


@pytest.mark.parametrize(("most", "most_per_key"), [(1, 1), (3, 1), (3, 3), (3, 2), (4, 2), (5, 4)])
@pytest.mark.parametrize("epsilon", ["1/2", "2"])
def test_stated_delta_covers_every_split(most, most_per_key, epsilon):
    epsilon, scale = Fraction(epsilon), Fraction(2)
    stated = float(gaussian_delta((scale,), epsilon, Sensitivity(most, most_per_key)))
    for parts in partitions(most, most_per_key):
        if parts and len(parts) <= 3:
            assert enumerated_delta(float(epsilon), [(2.0, c) for c in parts]) <= stated


@pytest.mark.parametrize("weights", [(1,), (1, 1), (2, 3)])
@pytest.mark.parametrize(("most", "most_per_key"), [(1, 1), (8, 1), (20, 1), (6, 3)])
def test_scales_are_the_smallest_that_hold(weights, most, most_per_key):
    epsilon, delta = Fraction(1), Fraction(1, 10**5)
    scales = gaussian_scales(weights, epsilon, delta, Sensitivity(most, most_per_key))
    assert [scale / scales[0] for scale in scales] == [Fraction(w, weights[0]) for w in weights]
    assert gaussian_delta(scales, epsilon, Sensitivity(most, most_per_key)) <= delta
    smaller = tuple(scale - Fraction(w, 64) for scale, w in zip(scales, weights, strict=True))
    assert gaussian_delta(smaller, epsilon, Sensitivity(most, most_per_key)) > delta


def test_known_values():
    """Continuous noise at (1, 1e-6) needs 4.225 for one vector and 5.98 for each of two: C = 20."""
    (one,) = gaussian_scales((1,), Fraction(1), Fraction(1, 10**6), Sensitivity(20, 1))
    assert float(one) / math.sqrt(20) == pytest.approx(4.225, rel=2e-3)
    two = gaussian_scales((1, 1), Fraction(1), Fraction(1, 10**6), Sensitivity(20, 1))
    assert float(two[1]) / math.sqrt(20) == pytest.approx(5.98, rel=2e-3)


def test_concentrated_bound_is_above_the_exact_one():
    for scale, count in ((Fraction(4), 1), (Fraction(12), 8), (Fraction(3, 2), 2)):
        for epsilon in (Fraction(1, 2), Fraction(1), Fraction(2)):
            loose = zcdp_delta(count / (2 * scale * scale), epsilon)
            assert unit_shift_delta((scale,), epsilon, count) <= loose <= 1


def test_noise_on_several_records_per_key_is_that_of_continuous_noise():
    """L∞ > 1: the bound by continuous noise needs 7 % less than the concentrated one, at any δ."""
    epsilon, delta, sensitivity = Fraction(1), Fraction(1, 10**6), Sensitivity(20, 5)
    (scale,) = gaussian_scales((1,), epsilon, delta, sensitivity)
    assert float(scale) / math.sqrt(sensitivity.l2_squared) == pytest.approx(4.225, rel=5e-3)
    assert zcdp_delta(sensitivity.l2_squared / (2 * scale * scale), epsilon) > 4 * delta


def test_broken_twins_are_rejected():
    """Scales of a wrong sensitivity, or of one vector where there are two, exceed the δ that they state."""
    epsilon, delta = Fraction(1), Fraction(1, 100)
    (for_one_key,) = gaussian_scales(
        (1,), epsilon, delta, Sensitivity(1, 1)
    )  # forgets that a user has three keys
    assert summed_delta(1.0, (float(for_one_key),), 3) > 2 * float(delta)
    (one_vector,) = gaussian_scales(
        (1,), epsilon, delta, Sensitivity(3, 1)
    )  # forgets that the buckets are released too
    assert summed_delta(1.0, (float(one_vector), float(one_vector)), 3) > 2 * float(delta)
    (spread,) = gaussian_scales((1,), epsilon, delta, Sensitivity(3, 1))  # √C where one key may take all of C
    assert enumerated_delta(1.0, [(float(spread), 3)]) > 2 * float(delta)
    # and the right ones do not
    right = gaussian_scales((1, 1), epsilon, delta, Sensitivity(3, 1))
    assert summed_delta(1.0, tuple(map(float, right)), 3) <= float(delta)
