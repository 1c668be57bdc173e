"""Users by their totals: sensitivity by brute force, the noise that the code draws, and what is chosen from it."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey
from hushgram.sparse_histogram.contribution_bounds import (
    GRID,
    MAX_CHOICE,
    UserTally,
    UserTotals,
    choose,
    privacy_map,
    release_totals,
)
from tests.statistics import fits, laplace_pmf

KEY = ReleaseKey(bytes(range(32)))


def tally(users, keys, most_per_key=1):
    rows = Contributions.of(users, keys, KEY, texts=False).prune(Bounds(MAX_CHOICE, most_per_key))
    return UserTally.of(rows.totals(Bounds(MAX_CHOICE, most_per_key)))


def test_one_user_changes_one_number_by_one():
    """All ways to add a user of up to four records over three keys, beside two others."""
    base_users, base_keys = ["a", "a", "b"], ["x", "y", "x"]
    for most_per_key in (1, 2, 3):
        base = tally(base_users, base_keys, most_per_key).users
        for size in range(1, 5):
            for keys in itertools.product("xyz", repeat=size):
                more = tally([*base_users, *"c" * size], [*base_keys, *keys], most_per_key).users
                assert np.abs(more - base).sum() == 1


def test_brute_force_rejects_cumulative_cells():
    """The broken twin: numbers of users with at least t move all at once, far more than the stated 1."""
    base, more = tally(["a"], ["x"]).users, tally(["a"] + ["b"] * 40, ["x", *map(str, range(40))]).users

    def at_least(users):
        return np.cumsum(users[::-1])[::-1]

    assert np.abs(at_least(more) - at_least(base)).sum() > 5


def test_totals_are_distinct_keys_and_no_more_than_the_most():
    users = np.repeat([1, 2, 3], [5, 3, 3000])
    keys = np.concatenate([[1, 1, 2, 3, 3], [7, 7, 7], np.arange(3000)])
    rows = Contributions.of(users, keys, KEY, texts=False)
    assert sorted(rows.totals(Bounds(MAX_CHOICE, 1)).tolist()) == [1, 3, 3000]
    assert sorted(rows.totals(Bounds(MAX_CHOICE, 2)).tolist()) == [2, 5, 3000]
    cells = UserTally.of(rows.totals(Bounds(MAX_CHOICE, 1))).users
    assert cells[0] == cells[2] == cells[-1] == 1
    assert cells.sum() == 3
    parts = UserTally.of(np.array([1, 2])) + UserTally.zero() + UserTally.of(np.array([9]))
    assert parts.users.tolist() == UserTally.of(np.array([1, 2, 9])).users.tolist()


def test_every_cell_has_the_stated_noise():
    seen = []
    for i in range(400):
        released = release_totals(UserTally.zero(), Fraction(1, 10), ReleaseKey(i.to_bytes(32, "little")))
        assert released.scale == 10
        assert privacy_map(released.scale) == Fraction(1, 10)
        seen += released.users
    assert fits(seen, {z: laplace_pmf(10.0, z) for z in range(-300, 301)})
    assert not fits(seen, {z: laplace_pmf(13.0, z) for z in range(-300, 301)})
    assert not fits(seen, {z: laplace_pmf(10.0 / 1.3, z) for z in range(-300, 301)})


def totals_of(sample):
    return UserTotals(tuple(UserTally.of(sample).users.tolist()), Fraction(1))


def test_what_is_lost_is_what_the_cut_takes_from_a_common_key():
    sample = np.minimum(np.random.default_rng(1).pareto(1.2, 40_000).astype(int) + 1, MAX_CHOICE)
    totals = totals_of(sample)
    for chosen in (8, 32, 128):
        exact = np.maximum(1 - chosen / sample, 0).sum()
        assert float(totals.lost(chosen)) == pytest.approx(exact, rel=0.1)


def test_the_share_of_records_is_near_the_truth():
    sample = np.random.default_rng(2).pareto(1.5, 400_000).astype(int) + 1
    for chosen in (4, 16, 64):
        exact = 1 - np.minimum(sample, chosen).sum() / sample.sum()
        assert totals_of(sample).dropped_share(chosen) == pytest.approx(exact, abs=0.08)
    assert totals_of(np.ones(100, int)).dropped_share(1) == 0


def test_the_choice_weighs_noise_against_the_cut():
    light, heavy = totals_of(np.ones(10_000, int)), totals_of(np.full(10_000, 500))
    assert choose(light, lambda c: Fraction(c * c)) == 1
    assert choose(heavy, lambda c: Fraction(c * c)) == 512
    assert choose(heavy, lambda c: Fraction(10**12 * c)) == 1
    # more users for whom more is lost: never a smaller C
    chosen = [choose(totals_of(np.full(n, 500)), lambda c: Fraction(100 * c)) for n in (10, 100, 1000, 10**5)]
    assert chosen == sorted(chosen)


def test_text_comes_back_and_nonsense_is_refused():
    totals = UserTotals(tuple(range(len(GRID))), Fraction(20))
    assert UserTotals.from_dict(totals.to_dict()) == totals
    for change in ({"users": [1]}, {"scale": "0"}, {"at_most": [1, 2]}, {"users": [0.5] * len(GRID)}):
        with pytest.raises(ParameterError):
            UserTotals.from_dict({**totals.to_dict(), **change})
