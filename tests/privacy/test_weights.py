"""Sums of values: how far one user, or one record, moves them, by brute force; and what the noise on them loses."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from hushgram.contributions.bounding import BoundingSpec, Bounds, Contributions
from hushgram.contributions.histogram import Histogram
from hushgram.contributions.sums import GRAINS, Grid, round_grains
from hushgram.noise.entropy import ReleaseKey
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.plan import make_public_plan
from tests.statistics import laplace_pmf

VALUES = (0.25, 0.5, 1.0, 3.0)
MOST, PER_KEY = 3, 2  # in units
GRID = Grid(Fraction(1), PER_KEY)


def contributions(rows, key):
    users, keys, values = zip(*rows, strict=True) if rows else ((), (), ())
    return Contributions.of(
        pa.array(users, pa.string()),
        pa.array(keys, pa.int64()),
        key,
        texts=False,
        values=((pa.array(values, pa.float64()), GRID),),
    )


def histogram(rows, key):
    return contributions(rows, key).bounded(Bounds(MOST, PER_KEY, weighted=True))


def rounded_too_late(rows, key):
    """The breach: bounded as reals, and rounded afterwards."""
    held = contributions(rows, key).bounded(Bounds(MOST * GRAINS, PER_KEY * GRAINS))
    return held.rounded(key)


def distance(one: Histogram, other: Histogram):
    """(L1, L∞) between two histograms."""
    keys = np.union1d(one.fingerprints, other.fingerprints)
    moved = np.abs(one.counts_of(keys) - other.counts_of(keys))
    return int(moved.sum()), int(moved.max(initial=0))


def everybody():
    """All sets of up to four records of one user: keys and values."""
    pairs = list(itertools.product(range(6), VALUES))
    yield from ([("u", *pair)] for pair in pairs)
    yield from ([("u", *a), ("u", *b)] for a, b in itertools.combinations_with_replacement(pairs, 2))
    for value in VALUES:
        for size in (3, 4, 5, 6):
            for keys in itertools.combinations(range(6), size):
                yield [("u", key, value) for key in keys]


OTHERS = [("a", 0, 0.5), ("a", 1, 3.0), ("b", 1, 0.25), ("b", 5, 1.0), ("b", 5, 1.0)]


def worst(make, keys=3):
    most = [0, 0]
    for number in range(keys):
        key = ReleaseKey(bytes([number]) * 32)
        without = make(OTHERS, key)
        for rows in everybody():
            found = distance(make([*OTHERS, *rows], key), without)
            most = [max(pair) for pair in zip(most, found, strict=True)]
    return most


def test_one_user_moves_sums_by_no_more_than_the_bounds():
    assert worst(histogram) == [MOST, PER_KEY]


def test_the_test_rejects_rounding_after_the_bound():
    assert worst(rounded_too_late)[0] > MOST


def test_one_record_moves_one_sum_by_no_more_than_its_bound():
    """Without users: rounding by key moves a sum by at most the value, rounded up."""
    for number in range(20):
        key = ReleaseKey(bytes([number]) * 32)
        for held in ([], [("k", 0.25)], [("k", 0.5), ("k", 1.75)], [("j", 0.75), ("k", 0.75)]):
            for value in (0.25, 1.0, 1.5, 2.0, 50.0):

                def sums(rows, key=key):
                    keys, values = zip(*rows, strict=True) if rows else ((), ())
                    column = pa.array(values, pa.float64())
                    names = pa.array(keys, pa.string())
                    return (
                        BoundingSpec(None, "k", key, (), False, (("v", GRID),))
                        .histogram(names, [column])
                        .rounded(key)
                    )

                moved = distance(sums([*held, ("k", value)]), sums(held))
                assert moved[0] <= min(math.ceil(value), PER_KEY)


def test_fresh_rounding_would_move_every_sum():
    """Why a draw is a function of user and key: with a draw for each run, others' sums would move too."""
    grains = np.full(50, GRAINS // 2)
    draws = [np.random.default_rng(seed).integers(0, 1 << 63, 50).astype(np.uint64) for seed in (1, 2)]
    assert int(np.abs(round_grains(grains, draws[0]) - round_grains(grains, draws[1])).sum()) > MOST


def worst_loss(epsilon):
    """Discrete Laplace noise of scale C/ε in units on all six sums: the largest log-ratio over outputs, enumerated."""
    scale, key = float(MOST / epsilon), ReleaseKey(bytes(32))
    without = histogram(OTHERS, key)
    reach = range(-60, 61)

    def loss(x, y):
        return max(math.log(laplace_pmf(scale, v - x) / laplace_pmf(scale, v - y)) for v in reach)

    found = 0.0
    for rows in everybody():
        other = histogram([*OTHERS, *rows], key)
        keys = np.union1d(without.fingerprints, other.fingerprints)
        pairs = zip(without.counts_of(keys).tolist(), other.counts_of(keys).tolist(), strict=True)
        found = max(found, sum(loss(x, y) for x, y in pairs if x != y))
    return found


@pytest.mark.parametrize("epsilon", ["1/2", "1", "2"])
def test_the_loss_of_noise_on_units_is_at_most_epsilon(epsilon):
    assert worst_loss(Fraction(epsilon)) == pytest.approx(float(Fraction(epsilon)), abs=1e-9)


def test_bounds_are_counted_in_units():
    """C and max_value in units are the sensitivity, and the noise of a public list is C/ε of them."""
    params = ReleaseParams(epsilon="1/2", max_contributions=3, max_value=1, granularity="1/4").resolve(
        public=True
    )
    assert (params.sensitivity.max_contributions, params.sensitivity.max_per_key) == (12, 4)
    assert make_public_plan(params, 5).scale == 24
