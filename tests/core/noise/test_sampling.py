"""Samplers have exactly the distributions that they name: false-alarm rate 1e-7 a test, each with a power check."""

import math
from fractions import Fraction

import numpy as np
import pytest

from hushgram.errors import ParameterError
from hushgram.noise import sampling
from hushgram.noise.entropy import BitSource, ReleaseKey
from hushgram.noise.intervals import Rational, enclose, exp_neg, geometric_digit, laplace_tail
from hushgram.noise.sampling import (
    bernoulli,
    discrete_laplace,
    flip_bits,
    geometric,
    rand_round,
    successes,
    uniform_below,
)
from tests.statistics import fits, laplace_pmf
from tests.statistics import laplace_tail as summed_tail

KEY = ReleaseKey(bytes(range(32)))
N = 400_000
pytestmark = pytest.mark.fresh_noise(rate=1e-5)


def source(name):
    return KEY.source(f"test-{name}")


@pytest.mark.parametrize(
    "p",
    [
        Fraction(0),
        Fraction(1, 5),
        Fraction(1, 256),
        Fraction(255, 256),
        Fraction(1, 3),
        Fraction(1, 10**6),
        Fraction(1),
    ],
)
def test_bernoulli(p):
    draws = bernoulli(p, N, source(f"bernoulli{p}"))
    assert fits(draws.astype(int), {1: float(p), 0: 1 - float(p)})


def test_bernoulli_power():
    draws = bernoulli(Fraction(1, 5), N, source("power"))
    for wrong in (0.2 * 1.03, 0.2 / 1.03):
        assert not fits(draws.astype(int), {1: wrong, 0: 1 - wrong})


def test_bernoulli_compares_with_every_digit():
    # All draws tie with the first two digits of p = 0x40_00_80: the third decides, half of the time.
    class Fixed(BitSource):
        def __init__(self, content):
            self.content, self.at = np.frombuffer(content, np.uint8), 0

        def take(self, n):
            self.at += n
            return self.content[self.at - n : self.at].copy()

    p = Fraction(0x400080, 1 << 24)
    draws = bernoulli(p, 3, Fixed(bytes([0x40, 0x40, 0x3F, 0, 0, 0x7F, 0x80])))
    assert draws.tolist() == [True, False, True]  # 0x40007F < p, 0x400080 = p is not below it, 0x3F < p


@pytest.mark.parametrize("p", [Fraction(1, 5), Fraction(1, 2), Fraction(1, 100)])
def test_flip_bits_flips_every_bit_alike(p):
    flipped = flip_bits(np.zeros(N // 8, np.uint8), p, source(f"flip{p}"))
    bits = np.unpackbits(flipped, bitorder="little")
    assert fits(bits, {1: float(p), 0: 1 - float(p)})
    for lane in range(8):
        assert fits(bits[lane::8], {1: float(p), 0: 1 - float(p)})
    pairs = bits[::2] * 2 + bits[1::2]  # neighbours are independent
    q = 1 - float(p)
    assert fits(pairs, {0: q * q, 1: q * float(p), 2: q * float(p), 3: float(p) ** 2})


def test_flip_bits_is_an_exclusive_or_and_keeps_length():
    packed = np.arange(13, dtype=np.uint8)
    once = flip_bits(packed, Fraction(1, 5), source("xor"))
    assert len(once) == 13
    assert (flip_bits(once, Fraction(1, 5), source("xor")) == packed).all()
    assert len(flip_bits(np.zeros(0, np.uint8), Fraction(1, 5), source("none"))) == 0


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(30, 7), Fraction(100)])
def test_geometric_and_laplace(scale):
    q = math.exp(-1 / scale)
    assert fits(geometric(scale, N, source(f"geo{scale}")), {g: (1 - q) * q**g for g in range(2000)})
    draws = discrete_laplace(scale, N, source(f"lap{scale}"))
    reach = range(-2000, 2001)
    assert fits(draws, {z: laplace_pmf(float(scale), z) for z in reach})
    for wrong in (float(scale) * 1.05, float(scale) / 1.05):
        assert not fits(draws, {z: laplace_pmf(wrong, z) for z in reach})


def test_tiny_and_huge_scales():
    assert not discrete_laplace(Fraction(1, 100), 1000, source("tiny")).any()
    huge = discrete_laplace(Fraction(1 << 40), 2000, source("huge"))
    assert 0.9 < np.abs(huge).mean() / 2**40 < 1.1
    for bad in (Fraction(0), Fraction(-1), Fraction(1 << 51)):
        with pytest.raises(ParameterError, match="scale"):
            discrete_laplace(bad, 1, source("bad"))


@pytest.mark.parametrize("t", [-3, 0, 1, 2, 25])
def test_tail_formula_against_summation(t):
    low, high = enclose(laplace_tail(Fraction(1, 2), t), 200)
    assert low <= high
    assert float(high) == pytest.approx(summed_tail(2.0, t), rel=1e-12)


def test_rand_round_is_unbiased_and_rounds_to_neighbours():
    width = Fraction(4847, 1024)
    for x in (0, 1, 4, 5, 23):
        draws = rand_round(np.full(N, x, np.int64), width, source(f"round{x}"))
        exact = x / float(width)
        floor = math.floor(exact)
        assert fits(draws, {floor: floor + 1 - exact, floor + 1: exact - floor})
    assert (rand_round(np.arange(10), Fraction(1), source("one")) == np.arange(10)).all()


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 256, 1000])
def test_uniform_below(bound):
    draws = uniform_below(bound, N, source(f"uniform{bound}"))
    assert fits(draws.astype(np.int64), dict.fromkeys(range(bound), 1 / bound))


def test_uniform_below_the_largest_bound():
    assert (uniform_below(1 << 64, 1000, source("max")) >> np.uint64(63)).mean() == pytest.approx(
        0.5, abs=0.1
    )


def test_successes_are_independent_trials():
    # Four cells with probability e^-1 each: the 16 subsets have product probabilities.
    p = math.exp(-1)
    tail = exp_neg(Fraction(1))._interval
    subsets = []
    for i in range(8_000):
        found = successes(4, tail, KEY.source("cells", i))
        subsets.append(sum(1 << int(cell) for cell in found))
    expected = {s: p ** s.bit_count() * (1 - p) ** (4 - s.bit_count()) for s in range(16)}
    assert fits(subsets, expected)
    off = p * 1.1
    assert not fits(subsets, {s: off ** s.bit_count() * (1 - off) ** (4 - s.bit_count()) for s in range(16)})


@pytest.mark.parametrize(
    ("cells", "at"),
    [(1, 1), (5, 1), (1000, 3), (1 << 40, 45), (1 << 63, 80), ((1 << 64) - 1, 80), (1 << 64, 80)],
)
def test_successes_are_a_walk_by_geometric_gaps(cells, at):
    """The same draws, one gap after another in integers of any size; both leave the source at the same place."""
    tail = laplace_tail(Fraction(1, 2), at)
    digits, beyond = sampling._gap_digits(tail, cells.bit_length())
    for i in range(40):
        ours, theirs = KEY.source("walk", i), KEY.source("walk", i)
        expected, place, ended = [], 0, False
        while not ended:
            drawn = [bernoulli(d, sampling._gap_batch(tail, cells), theirs) for d in (*digits, beyond)]
            for gap in zip(*drawn, strict=True):
                place += sum(int(digit) << j for j, digit in enumerate(gap[:-1]))
                if ended := bool(gap[-1]) or place >= cells:
                    break
                expected.append(place)
                place += 1
        assert successes(cells, tail, ours).tolist() == expected
        assert ours.take(8).tolist() == theirs.take(8).tolist()


def test_successes_over_the_largest_domain():
    tail = laplace_tail(Fraction(1, 2), 88)
    counts = [len(successes(1 << 64, tail, KEY.source("all", i))) for i in range(2000)]
    mean = 2.0**64 * summed_tail(2.0, 88)
    assert fits(counts, {k: math.exp(-mean) * mean**k / math.factorial(k) for k in range(20)})
    assert len(successes(0, laplace_tail(Fraction(1, 2), 88), source("none"))) == 0


def test_digits_of_known_numbers():
    assert [Rational(Fraction(1, 2)).byte(i) for i in range(3)] == [128, 0, 0]
    # e^-1 = 0.5E2D58D8B3BCDF1ABADEC7829054F90D... in base 16
    assert bytes(exp_neg(Fraction(1)).byte(i) for i in range(8)).hex() == "5e2d58d8b3bcdf1a"
    assert geometric_digit(Fraction(1), 0).byte(0) == int(256 * math.exp(-1) / (1 + math.exp(-1)))
