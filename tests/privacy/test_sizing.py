"""Sizing: the L1 sensitivity of (n, N_t) by brute force, and the noise that the code draws."""

import itertools
from fractions import Fraction

import numpy as np

from hushgram.contributions.histogram import Histogram
from hushgram.noise.entropy import ReleaseKey
from hushgram.sensitivity import Sensitivity
from hushgram.sparse_histogram.sizing import PROFILE_GRID, Survey, of_sizes, privacy_map, release_sizes
from tests.statistics import fits, laplace_pmf


def numbers(x):
    held = np.array([c for c in x if c], np.int64)
    tally = Survey.of(enumerate([Histogram(np.arange(len(held), dtype=np.uint64), held)]))
    return np.concatenate([[tally.records], tally.profile])


def test_tally_counts():
    values = numbers((1, 1, 5, 40))
    assert values[0] == 47
    assert dict(zip(PROFILE_GRID, values[1:].tolist(), strict=True)) == {
        t: sum(c >= t for c in (1, 1, 5, 40)) for t in PROFILE_GRID
    }


def test_grid_starts_at_one_and_rises():
    assert PROFILE_GRID[0] == 1
    assert list(PROFILE_GRID) == sorted(set(PROFILE_GRID))


def test_sensitivity_by_brute_force():
    """All histograms of three keys with counts up to 20, all ways to add at most three units."""
    worst = 0
    grid = (0, 1, 2, 3, 7, 15, 16, 17, 19, 20)
    for x in itertools.product(grid, repeat=3):
        base = numbers(x)
        for added in itertools.product(range(4), repeat=3):
            if sum(added) <= 3:
                moved = numbers([a + b for a, b in zip(x, added, strict=True)])
                worst = max(worst, int(np.abs(moved - base).sum()))
    assert worst == of_sizes(Sensitivity(3, 3)).l1  # 2C, and it is reached


def test_brute_force_rejects_non_cumulative_profile():
    """A profile of counts equal to t would move two numbers a unit: 3C, which the stated 2C does not cover."""

    def broken(x):
        return np.array([sum(x), *(sum(c == t for c in x) for t in range(1, 30))])

    worst = max(np.abs(broken((a + 3, 1)) - broken((a, 1))).sum() for a in range(1, 10))
    worst = max(worst, np.abs(broken((2, 2, 2)) - broken((1, 1, 1))).sum())
    assert worst > of_sizes(Sensitivity(3, 3)).l1


def test_noise_has_the_stated_scale():
    tally = Survey.of(
        enumerate([Histogram(np.arange(3, dtype=np.uint64), np.array([1, 2, 30]), None, Sensitivity(3, 3))])
    )
    epsilon, most = Fraction(1, 2), Sensitivity(3, 3)
    seen = []
    for i in range(300):
        sizes = release_sizes(tally, epsilon, most, ReleaseKey(i.to_bytes(32, "little")))
        assert sizes.scale == Fraction(12)
        assert privacy_map(sizes.scale, most) == epsilon
        assert sizes.keys == sizes.profile[0]
        seen += [sizes.records - 33, *(np.array(sizes.profile) - tally.profile).tolist()]
    assert fits(seen, {z: laplace_pmf(12.0, z) for z in range(-400, 401)})
    assert not fits(seen, {z: laplace_pmf(12.0 * 1.1, z) for z in range(-400, 401)})
    assert not fits(seen, {z: laplace_pmf(6.0, z) for z in range(-400, 401)})
