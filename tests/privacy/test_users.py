"""The histogram over users: sensitivity by brute force, the noise that the code draws, and what follows from it."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hushgram as hg
from hushgram.contributions.sums import checked_values
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey
from hushgram.sensitivity import ExactVector, Sensitivity
from hushgram.sparse_histogram.spec import ReleaseSpec
from hushgram.sparse_histogram.steps import tally_contributions
from hushgram.sparse_histogram.users import (
    CHOICES,
    UserHistogram,
    choose,
    nobody,
    privacy_map,
    release_users,
    tally_users,
    user_ends,
)
from tests.statistics import fits, laplace_pmf

KEY = ReleaseKey(bytes(range(32)))
SETTINGS: dict[str, dict[str, Any]] = {
    "counts": {"max_contributions": 2},
    "one key": {"max_contributions": 1, "delta": "1e-2"},
    "per key": {"max_contributions": 3, "max_per_key": 2},
    "weights": {"max_contributions": 2, "delta": "1e-2"},
    "auto": {"max_contributions": "auto", "max_per_key": 2},
    "values": {"max_contributions": 8, "max_value": 4, "granularity": 1},
}


def tally_of(name: str, users: Any, keys: Any, values: Any = None) -> NDArray[np.int64]:
    params = hg.ReleaseParams(epsilon=1, **SETTINGS[name])
    value = "value" if name == "values" else None
    spec = ReleaseSpec.of(params, user="user", value=value, release_key=KEY)
    columns = [] if value is None else [checked_values(values, len(keys))]
    rows = spec.bounding.contributions(users, keys, columns).prune(*spec.bounding.bounds)
    tally = tally_contributions(rows, spec)
    assert len(tally) == len(spec.params.user_ends)
    return tally.values


def worst_distance(name: str) -> float:
    """The largest L1 distance, by all ways to add a user of up to three records over three keys, beside two others."""
    users, keys, values = ["a", "a", "b", "b", "b"], ["x", "y", "x", "x", "z"], [1.0, 0.3, 9.0, 2.5, 1e12]
    base = tally_of(name, users, keys, values)
    amounts = (0.0, 0.7, 100.0) if name == "values" else (1.0,)
    worst = 0.0
    for size in range(1, 4):
        for more in itertools.product("xyz", repeat=size):
            for added in itertools.product(amounts, repeat=size):
                moved = tally_of(name, [*users, *"c" * size], [*keys, *more], [*values, *added]) - base
                assert moved.min() >= 0
                worst = max(worst, float(np.abs(moved).sum()))
    return worst


@pytest.mark.parametrize("name", SETTINGS)
def test_one_user_moves_one_number_by_one(name: str) -> None:
    assert worst_distance(name) == 1  # over the scale it is the loss of Laplace noise, which reaches it
    assert privacy_map(Fraction(10)) == Fraction(1, 10)


def test_brute_force_rejects_cumulative_cells() -> None:
    """The broken twin: numbers of users with at least t move all at once, far more than the stated 1."""
    base = tally_of("counts", ["a"], ["x"])
    more = tally_of("counts", ["a"] + ["b"] * 40, ["x", *map(str, range(40))])

    def at_least(users: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.cumsum(users[::-1])[::-1]

    assert np.abs(at_least(more) - at_least(base)).sum() > 5


def test_noise_refuses_a_tally_that_a_user_moves_further() -> None:
    ends = user_ends(8)
    release_users(nobody(ends), ends, Fraction(1), KEY)
    with pytest.raises(ParameterError, match="at most 2 per user"):
        release_users(ExactVector(nobody(ends).values, Sensitivity(2, 1)), ends, Fraction(1), KEY)


def test_totals_are_distinct_keys_up_to_the_last_end() -> None:
    users = np.repeat([1, 2, 3], [5, 3, 3000])
    keys = np.concatenate([[1, 1, 2, 3, 3], [7, 7, 7], np.arange(3000)])
    for name, totals in (("counts", (3, 1)), ("per key", (5, 2)), ("auto", (5, 2))):
        ends = user_ends(SETTINGS[name]["max_contributions"] if name != "auto" else None)
        expected = np.bincount(np.searchsorted(ends, (*totals, ends[-1])), minlength=len(ends))
        assert tally_of(name, users, keys).tolist() == expected.tolist()
    ends = user_ends(1)
    parts = tally_users(np.array([1, 2]), ends) + nobody(ends) + tally_users(np.array([900]), ends)
    assert parts.values.tolist() == tally_users(np.array([1, 2, 900]), ends).values.tolist()


def test_every_cell_has_the_stated_noise() -> None:
    seen: list[int] = []
    ends = user_ends(1)
    for i in range(600):
        released = release_users(nobody(ends), ends, Fraction(1, 10), ReleaseKey(i.to_bytes(32, "little")))
        assert released.scale == 10
        seen += released.users
    for scale, right in ((10.0, True), (13.0, False), (10.0 / 1.3, False)):
        assert fits(seen, {z: laplace_pmf(scale, z) for z in range(-300, 301)}) == right


def histogram_of(sample: NDArray[np.int64], most: int | None = None) -> UserHistogram:
    ends = user_ends(most)
    return UserHistogram(ends, tuple(tally_users(sample, ends).values.tolist()), Fraction(1))


ACTIVITY = {
    "pareto": lambda rng, n: np.ceil(rng.pareto(1.2, n) * 3 + 0.01).astype(np.int64),
    "geometric": lambda rng, n: rng.geometric(0.1, n),
    "log-normal": lambda rng, n: np.ceil(rng.lognormal(1.5, 1.5, n)).astype(np.int64),
    "nine each": lambda rng, n: np.full(n, 9),
}


@pytest.mark.parametrize("name", ACTIVITY)
@pytest.mark.parametrize("most", [1, 8, 50])
def test_the_interval_of_the_share_kept_holds_the_truth(name: str, most: int) -> None:
    sample, ends = ACTIVITY[name](np.random.default_rng(5), 300_000), user_ends(most)
    tally, held, widths = tally_users(sample, ends), 0, []
    for number in range(30):
        found = release_users(tally, ends, Fraction(1, 100), ReleaseKey(bytes([number] * 32))).kept(most)
        assert found is not None
        seen = np.minimum(sample if found.up_to is None else sample[sample <= found.up_to], ends[-1])
        truth = np.minimum(seen, most).sum() / seen.sum()
        held += found.low <= truth <= found.high
        assert found.low <= found.share <= found.high
        widths.append(found.high - found.low)
    assert held == 30
    assert np.mean(widths) <= 0.2


def test_too_few_users_say_nothing_of_what_is_kept() -> None:
    ends = user_ends(8)
    for number in range(20):
        tally = tally_users(np.full(30, 20), ends)
        found = release_users(tally, ends, Fraction(1, 100), ReleaseKey(bytes([number] * 32)))
        assert found.kept(8) is None
        assert "too few users" in found.kept_in_words(8)


def test_words_say_of_whom_and_how_much() -> None:
    sample = np.repeat([2, 20], [300_000, 30_000])
    words = histogram_of(sample, 8).kept_in_words(8)
    assert re.match("about 7[0-9]% \\((69|70)% to 7[0-9]%\\) ", words)
    assert (
        "of what users have, up to 128 each, is counted, at most 8 of a user; how much a single key" in words
    )
    summed = histogram_of(sample, 8).kept_in_words(8, 0.5, sums=True, chosen=True)
    assert "up to 64 each" in summed
    assert "at most 4 of a user, which was chosen from the data" in summed


def test_what_is_lost_is_what_the_cut_takes_from_a_common_key() -> None:
    sample = np.minimum(np.random.default_rng(1).pareto(1.2, 40_000).astype(int) + 1, 1024)
    for chosen in (8, 32, 128):
        exact = np.maximum(1 - chosen / sample, 0).sum()
        assert float(histogram_of(sample).lost(chosen)) == pytest.approx(exact, rel=0.1)


def test_the_choice_weighs_noise_against_the_cut() -> None:
    light, heavy = histogram_of(np.ones(10_000, int)), histogram_of(np.full(10_000, 500))
    assert choose(light, lambda c: Fraction(c * c)) == 1
    assert choose(heavy, lambda c: Fraction(c * c)) == 512
    assert choose(heavy, lambda c: Fraction(10**12 * c)) == 1
    # more users for whom more is lost: never a smaller C
    chosen = [
        choose(histogram_of(np.full(n, 500)), lambda c: Fraction(100 * c)) for n in (10, 100, 1000, 10**5)
    ]
    assert chosen == sorted(chosen)
    assert set(chosen) <= set(CHOICES)


def test_rounds_follow_from_what_users_have() -> None:
    assert histogram_of(np.repeat([1, 4], [900, 100])).rounds() == 1
    assert histogram_of(np.repeat([1, 2], [500, 500])).rounds() == 2
    assert histogram_of(np.full(500, 9)).rounds() == 3
    assert histogram_of(np.ones(1, int)).rounds() == 3  # nothing is known


def test_what_is_likely_has_the_total_of_the_users() -> None:
    sample = np.random.default_rng(2).pareto(1.5, 400_000).astype(int) + 1
    for most in (4, None):
        likely = histogram_of(sample, most).likely()
        assert sum(n for n, _ in likely) == pytest.approx(len(sample), rel=0.01)
        assert sum(n * min(total, 64) for n, total in likely) == pytest.approx(
            np.minimum(sample, 64).sum(), rel=0.15
        )
    assert histogram_of(np.ones(3, int)).likely() == []


def test_text_comes_back_and_nonsense_is_refused() -> None:
    ends = user_ends(8)
    users = UserHistogram(ends, tuple(range(len(ends))), Fraction(20))
    assert UserHistogram.from_dict(users.to_dict(), ends) == users
    for change in ({"users": [1]}, {"scale": "0"}, {"at_most": [1, 2]}, {"users": [0.5] * len(ends)}):
        with pytest.raises(ParameterError):
            UserHistogram.from_dict({**users.to_dict(), **change}, ends)
    with pytest.raises(ParameterError):
        UserHistogram.from_dict(users.to_dict(), user_ends(9))
