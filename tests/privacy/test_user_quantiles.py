"""Users by their figures: sensitivity by brute force, the noise that the code draws, and intervals that hold."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from hushgram.contributions.sums import checked_values
from hushgram.errors import ParameterError
from hushgram.mechanisms.user_quantiles import (
    FIGURES,
    QuantileParams,
    UserFigures,
    privacy_map,
    quantiles_of_users,
    release_figures,
    tally_users,
)
from hushgram.noise.entropy import ReleaseKey
from hushgram.sensitivity import ExactVector, Sensitivity
from tests.statistics import fits, laplace_pmf

KEY = ReleaseKey(bytes(range(32)))
PARAMS = (QuantileParams("1/2"), QuantileParams(2, summed=True))


def tally(users, keys, params, values=None):
    spec = params.bounding("user", "key", KEY, "value" if params.summed else None)
    columns = [checked_values(values, len(keys))] if params.summed else []
    return tally_users(spec.contributions(users, keys, columns), params)


def neighbours(params):
    """All ways to add a user of up to three records over two keys, beside two others: the numbers before and after."""
    users, keys, values = ["a", "a", "b"], ["x", "y", "x"], [1.0, 0.25, 3e9]
    base = tally(users, keys, params, values).values
    amounts = (0.001, 7.5, 1e15) if params.summed else (1.0,)
    for size in range(1, 4):
        for more in itertools.product("xy", repeat=size):
            for added in itertools.product(amounts, repeat=size):
                yield base, tally([*users, *"c" * size], [*keys, *more], params, [*values, *added]).values


def worst_loss(params):
    """The largest |ln P/P'| over all outputs: |x − x'|/scale per number, which the noise's ratio reaches."""
    return max(float(np.abs(more - base).sum() / params.scale) for base, more in neighbours(params))


@pytest.mark.parametrize("params", PARAMS, ids=["records", "values"])
def test_one_user_moves_one_cell_of_each_figure(params):
    for base, more in neighbours(params):
        at = 0
        for ends in params.ends:
            moved = np.abs((more - base)[at : at + len(ends)])
            assert moved.sum() <= 1  # 0 where a value is too small to count
            at += len(ends)
    assert worst_loss(params) == pytest.approx(float(params.epsilon))
    assert privacy_map(params.scale) == params.epsilon


def test_brute_force_rejects_one_cell_per_key():
    """The broken twin: every (user, key) pair counts in the second figure, so that a user moves many numbers."""

    def broken(users, keys):
        pairs = {}
        for pair in zip(users, keys, strict=True):
            pairs[pair] = pairs.get(pair, 0) + 1
        return np.bincount(list(pairs.values()), minlength=5)

    base, more = broken(["a"], ["x"]), broken(["a", "c", "c", "c"], ["x", "x", "y", "z"])
    assert np.abs(more - base).sum() > 1


def test_exact_enumeration_of_the_noise():
    """Every output of one number in a window: the ratio of neighbours is at most e^(1/scale), and reaches it."""
    scale = float(PARAMS[0].scale)
    ratios = [laplace_pmf(scale, z) / laplace_pmf(scale, z - 1) for z in range(-40, 41)]
    assert max(map(abs, map(math.log, ratios))) == pytest.approx(1 / scale)


def test_only_the_stated_sensitivity_is_admitted():
    cells = sum(map(len, PARAMS[0].ends))
    for moved in (Sensitivity(4, 1), Sensitivity(3, 2), Sensitivity(3, 1, "record")):
        with pytest.raises(ParameterError, match="calibrated"):
            release_figures(ExactVector(np.zeros(cells, np.int64), moved), PARAMS[0], KEY)


def test_every_number_has_the_stated_noise():
    """False alarms: 10^-6 (`fits`); a scale 30 % off is rejected on both sides."""
    params, seen = QuantileParams("0.3"), []
    nobody = ExactVector(np.zeros(sum(map(len, params.ends)), np.int64), Sensitivity(3, 1))
    for i in range(300):
        released = release_figures(nobody, params, ReleaseKey(i.to_bytes(32, "little")))
        seen += [n for users in released.users for n in users]
    assert fits(seen, {z: laplace_pmf(10.0, z) for z in range(-300, 301)})
    assert not fits(seen, {z: laplace_pmf(13.0, z) for z in range(-300, 301)})
    assert not fits(seen, {z: laplace_pmf(10.0 / 1.3, z) for z in range(-300, 301)})


def test_figures_of_values_from_cents_to_billions():
    values = [0.01, 0.5, 3.0, 100.0, 2e7, 5e9, 1e12, 1e15]
    users = list(range(len(values)))
    found = quantiles_of_users(
        users, ["k"] * len(values), QuantileParams(1000, summed=True), values=values, release_key=KEY
    )
    ends = found.ends(FIGURES[1])
    cells = [end for end, n in zip(ends, found.users[1], strict=True) for _ in range(n)]
    for cell, value in zip(cells, values, strict=True):
        assert cell == ends[-1] or cell / 2 < value <= cell or value < 1 / 32
    assert found.users[1] == found.users[2]


def test_parts_of_a_user_do_not_matter():
    """Rows of one user in any number of parts, pruned or not, lie in the same cells."""
    rng = np.random.default_rng(3)
    users, keys, values = rng.integers(0, 9, 500), rng.integers(0, 40, 500), rng.lognormal(2, 3, 500)
    for params in PARAMS:
        spec = params.bounding("user", "key", KEY, "value" if params.summed else None)
        cut = np.array_split(np.arange(500), 7)
        parts = [
            spec.contributions(
                users[at], keys[at], [checked_values(values[at], len(at))] if params.summed else []
            )
            for at in cut
        ]
        whole = type(parts[0]).concat([part.prune(*params.bounds) for part in parts])
        expected = tally(users, keys, params, values)
        assert tally_users(whole, params).values.tolist() == expected.values.tolist()


def test_intervals_hold_the_quantile():
    """Of 150 releases × 5 quantiles at most 5 % are outside; more than 9 % has probability below 10^-6 at 5 %."""
    rng = np.random.default_rng(7)
    params = QuantileParams("0.1")
    totals = np.minimum(rng.pareto(1.1, 4000) * 3 + 1, 60000).astype(int)
    ends = np.array(params.ends[2])
    exact = np.bincount(np.searchsorted(ends, totals), minlength=len(ends))
    users = np.concatenate([np.zeros(len(params.ends[0]) + len(ends), np.int64), exact])
    outside = tries = 0
    for i in range(150):
        released = release_figures(
            ExactVector(users, Sensitivity(3, 1)), params, ReleaseKey(i.to_bytes(32, "big"))
        )
        for q in (0.5, 0.75, 0.9, 0.95, 0.99):
            truth = ends[np.argmax(np.cumsum(exact) >= q * exact.sum())]
            found = released.quantile(FIGURES[2], q)
            outside += not found.low <= truth <= found.high
            assert found.low <= found.at_most <= found.high
            tries += 1
    assert outside / tries < 0.09


def test_advice_is_a_valid_config():
    import hushgram as hg

    rng = np.random.default_rng(5)
    users, keys = rng.integers(0, 3000, 30_000), rng.integers(0, 50, 30_000)
    counts = quantiles_of_users(users, keys, QuantileParams(2), release_key=KEY)
    once, often = counts.advice()
    assert once == {"max_contributions": 16}
    assert set(often) == {"max_contributions", "max_per_key"}
    sums = quantiles_of_users(
        users, keys, QuantileParams(2, summed=True), values=rng.lognormal(2, 1, 30_000), release_key=KEY
    )
    for fields in (once, often, *sums.advice()):
        whole = {name: int(n) if n == int(n) else n for name, n in fields.items()}
        hg.ReleaseParams(epsilon=1, **whole)
    assert next(row["suggests"] for row in counts.rows() if row["suggests"]) == "max_contributions: 16"
    again = UserFigures.from_dict(counts.to_dict(), counts.params)
    assert again == counts


def test_wrong_parameters():
    for epsilon in (0, -1, "1e-9", 2000):
        with pytest.raises(ParameterError, match="epsilon"):
            QuantileParams(epsilon)
    with pytest.raises(ParameterError, match="summed"):
        quantiles_of_users(["a"], ["x"], QuantileParams(1), values=[1.0])
    assert QuantileParams(Fraction(1, 20)).scale == 60
