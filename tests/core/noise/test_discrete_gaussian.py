"""The discrete Gaussian has exactly its distribution: false-alarm rate 1e-7 a test, each with a power check."""

import math
from fractions import Fraction

import numpy as np
import pytest

from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.gaussian import discrete_gaussian, discrete_gaussians, gaussian_tails
from hushgram.noise.intervals import enclose
from tests.statistics import fits, gaussian_pmf

KEY = ReleaseKey(bytes(range(32)))
N = 300_000
pytestmark = pytest.mark.fresh_noise(rate=1e-5)


def source(name):
    return KEY.source(f"test-{name}")


@pytest.mark.parametrize(
    "scale", [Fraction(1, 3), Fraction(1), Fraction(27, 4), Fraction(60), Fraction(301, 64)]
)
def test_draws_fit_and_noise_off_by_a_twentieth_is_rejected(scale):
    draws = discrete_gaussian(scale, N, source(f"gauss{scale}"))
    reach = range(-math.ceil(12 * scale) - 3, math.ceil(12 * scale) + 4)
    assert len(draws) == N
    assert fits(draws, {z: gaussian_pmf(float(scale), z) for z in reach})
    for wrong in (1.3, 1 / 1.3, 1.05, 1 / 1.05):
        assert not fits(draws, {z: gaussian_pmf(float(scale) * wrong, z) for z in reach})
    pairs = np.sign(draws[::2]) * 3 + np.sign(draws[1::2])  # neighbours are independent
    zero = gaussian_pmf(float(scale), 0)
    side = {0: zero, 1: (1 - zero) / 2, -1: (1 - zero) / 2}
    assert fits(pairs, {3 * a + b: side[a] * side[b] for a in side for b in side})


def test_continuous_gaussian_rounded_is_told_apart():
    """A float Gaussian rounded to integers has variance σ² + 1/12: rejected at σ = 1."""
    scale = 1.0
    exact = discrete_gaussian(Fraction(1), N, source("rounded"))
    rounded = {
        z: (math.erf((z + 0.5) / math.sqrt(2)) - math.erf((z - 0.5) / math.sqrt(2))) / 2
        for z in range(-12, 13)
    }
    assert fits(exact, {z: gaussian_pmf(scale, z) for z in range(-12, 13)})
    assert not fits(exact, rounded)


def test_wide_scales_keep_their_moments():
    """Products of 62 bits: σ = 2^20 and 2^34. Four standard errors of the second and fourth moments."""
    for scale in (Fraction(1 << 20), Fraction(1 << 34)):
        z = discrete_gaussian(scale, 20_000, source(f"wide{scale}")) / float(scale)
        assert abs((z**2).mean() - 1) < 4 * math.sqrt(2 / len(z))
        assert abs((z**4).mean() - 3) < 4 * math.sqrt(96 / len(z))


@pytest.mark.parametrize("bad", [Fraction(0), Fraction(-1), Fraction((1 << 34) + 1), Fraction(1, 4097)])
def test_scales_out_of_range(bad):
    with pytest.raises(ParameterError, match="scale"):
        discrete_gaussian(bad, 1, source("bad"))


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(653, 32), Fraction(66059)])
def test_sources_side_by_side_give_what_each_gives_by_itself(scale, monkeypatch):
    monkeypatch.setattr("hushgram.noise.gaussian._SIDE_BY_SIDE", 5000)
    sizes = [0, 1, 300, 2, 0, 4000, 40, 7000, 3]
    alone, beside = ([source(f"beside{i}") for i in range(len(sizes))] for _ in range(2))
    each = [discrete_gaussian(scale, size, one) for size, one in zip(sizes, alone, strict=True)]
    assert np.array_equal(discrete_gaussians(scale, sizes, beside), np.concatenate(each))
    assert [one.take(9).tolist() for one in beside] == [one.take(9).tolist() for one in alone]


def test_no_draws():
    assert len(discrete_gaussian(Fraction(2), 0, source("none"))) == 0


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(437, 16)])
def test_tails_against_summation(scale):
    for t in (-200, -3, 0, 1, 2, 25, 130):
        low, high = enclose(gaussian_tails(scale * scale, t), 200)
        reach = max(abs(t), 0) + math.ceil(14 * scale) + 4
        summed = math.fsum(gaussian_pmf(float(scale), z) for z in range(t, reach))
        assert 0 <= low <= high <= 1 + Fraction(1, 2**100)
        assert high - low < Fraction(1, 2**100)
        assert float(high) == pytest.approx(summed, rel=1e-11, abs=1e-60)


def test_a_tail_beyond_all_terms_is_still_enclosed():
    low, high = enclose(gaussian_tails(Fraction(1), 10**6), 200)
    assert 0 <= low <= high < Fraction(1, 2**150)
