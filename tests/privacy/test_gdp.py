"""One privacy map for discrete Gaussian vectors: enclosures, exact enumeration, and a broken variant."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hushgram.noise.gdp import NoisyVector, OneOf, gdp_delta, gdp_mu, normal_tail, pure_mu_squared
from hushgram.noise.intervals import enclose


@pytest.mark.parametrize("x", ["0", "0.3", "0.999", "1", "1.5", "4.12", "8", "30", "-0.4", "-1", "-6"])
def test_normal_tail_is_enclosed(x: str) -> None:
    low, high = enclose(lambda iv: normal_tail(iv, iv.mpf(x)), 160)
    with mpmath.workprec(400):
        # the interval of a decimal is that of its two neighbours
        truth = mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2
        ends = [mpmath.mpf(end.numerator) / end.denominator for end in (low, high)]
        assert ends[0] <= truth <= ends[1]
    assert high - low <= high / 10**15


def exact_delta(vectors: list[tuple[float, tuple[int, ...]]], epsilon: float) -> float:
    """δ of discrete Gaussian vectors moved by given shifts: the loss is enumerated over all sums of the noises."""
    losses, mass = np.zeros(1), np.ones(1)
    for scale, shifts in vectors:
        z = np.arange(-int(9 * scale) - 1, int(9 * scale) + 2)
        p = np.exp(-0.5 * (z / scale) ** 2)
        p /= p.sum()
        for shift in shifts:
            loss = (shift * z + shift * shift / 2) / scale**2
            losses = np.add.outer(losses, loss).ravel()
            mass = np.multiply.outer(mass, p).ravel()
            keep = mass > 1e-16
            losses, mass = losses[keep], mass[keep]
    over = losses > epsilon
    return float((mass[over] * -np.expm1(epsilon - losses[over])).sum())


CASES = [
    ([(3.0, (1,))], 1, 1),
    ([(4.0, (2, 1))], 5, 2),
    ([(4.0, (1, 1))], 2, 2),
    ([(3.0, (1,)), (5.0, (2,))], 4, 1),
    ([(6.0, (3, 1))], 10, 2),
]


@pytest.mark.parametrize(("vectors", "l2", "l0"), CASES)
@pytest.mark.parametrize("epsilon", [Fraction(1, 5), Fraction(1, 2), Fraction(1)])
def test_delta_by_enumeration(
    vectors: list[tuple[float, tuple[int, ...]]], l2: int, l0: int, epsilon: Fraction
) -> None:
    stated = tuple(
        NoisyVector(Fraction(scale), sum(s * s for s in shifts), len(shifts)) for scale, shifts in vectors
    )
    exact = exact_delta(vectors, float(epsilon))
    claimed = float(gdp_delta(stated, epsilon))
    assert exact <= claimed
    if exact > 1e-9:
        assert claimed <= 2.5 * exact  # small scales give up the most


def test_large_scales_lose_nothing() -> None:
    """At scales of weights the claim is that of continuous noise to six digits."""
    for epsilon, delta in itertools.product(
        (Fraction(1, 2), Fraction(2)), (Fraction(1, 10**6), Fraction(1, 10**9))
    ):
        scale = Fraction(int(4096 / gdp_mu(epsilon, delta)) + 1)
        claimed = gdp_delta((NoisyVector(scale, 4096**2, 100),), epsilon)
        assert claimed <= delta
        assert claimed >= delta * (1 - Fraction(1, 200))


def test_noise_made_for_one_vector_does_not_hold_for_two() -> None:
    scale = Fraction(17, 4)
    one, two = ((NoisyVector(scale, 1, 1),) * n for n in (1, 2))
    claimed = float(gdp_delta(one, Fraction(1)))
    assert exact_delta([(4.25, (1,))] * 2, 1.0) > 10 * claimed
    assert gdp_delta(two, Fraction(1)) >= exact_delta([(4.25, (1,))] * 2, 1.0)


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1, 2), Fraction(2)])
def test_randomized_response_is_within_its_mu(epsilon: Fraction) -> None:
    """The worst ε-DP mechanism has no more δ, at any ε', than the Gaussian that stands for it."""
    e, mu = float(epsilon), math.sqrt(pure_mu_squared(epsilon))
    tail = lambda x: math.erfc(x / math.sqrt(2)) / 2  # noqa: E731
    for at in np.linspace(0, 1.2 * e, 25):
        response = max((math.exp(e) - math.exp(at)) / (1 + math.exp(e)), 0)
        gaussian = tail(at / mu - mu / 2) - math.exp(at) * tail(at / mu + mu / 2)
        assert response <= gaussian + 1e-12


def test_a_pure_step_counts_as_one_more_vector() -> None:
    vectors = (NoisyVector(Fraction(40), 64, 64),)
    assert gdp_delta(vectors, Fraction(1)) < gdp_delta(vectors, Fraction(1), (Fraction(1, 50),))


def adaptive_delta(first: float, later: tuple[tuple[float, int], tuple[float, int]], epsilon: float) -> float:
    """Exact δ where a count moved by 1 is released first, and its sign says which scale and shift come next."""
    out = 0.0
    z = np.arange(-int(9 * first) - 1, int(9 * first) + 2)
    p = np.exp(-0.5 * (z / first) ** 2)
    p /= p.sum()
    for positive, (scale, shift) in zip((False, True), later, strict=True):
        mine = (z > 0) == positive
        y = np.arange(-int(9 * scale) - 1, int(9 * scale) + 2)
        q = np.exp(-0.5 * (y / scale) ** 2)
        q /= q.sum()
        losses = np.add.outer((z[mine] + 0.5) / first**2, (shift * y + shift**2 / 2) / scale**2)
        mass = np.multiply.outer(p[mine], q)
        over = losses > epsilon
        out += float((mass[over] * -np.expm1(epsilon - losses[over])).sum())
    return out


def test_a_vector_that_is_chosen_by_earlier_results() -> None:
    """The largest of the choices covers all of them; the claim of one of them does not cover the others."""
    first, later = 4.0, ((8.0, 1), (3.0, 1))
    vectors = tuple(NoisyVector(Fraction(scale), shift**2, 1) for scale, shift in later)
    before = NoisyVector(Fraction(first), 1, 1)
    for epsilon in (Fraction(1, 2), Fraction(1)):
        exact = adaptive_delta(first, later, float(epsilon))
        assert exact <= gdp_delta((before, OneOf(tuple((each,) for each in vectors))), epsilon)
        assert exact > gdp_delta((before, vectors[0]), epsilon)


def test_one_choice_is_the_vectors_themselves() -> None:
    vectors = (NoisyVector(Fraction(9), 4, 4), NoisyVector(Fraction(7), 2, 2))
    assert gdp_delta((OneOf((vectors,)),), Fraction(1, 2)) == gdp_delta(vectors, Fraction(1, 2))
