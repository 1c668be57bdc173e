"""The share that bounding keeps: sensitivity by brute force, the noise that the code draws, and intervals that hold."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import hushgram as hg
from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.contributions.sums import checked_values
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey
from hushgram.sensitivity import ExactVector, Sensitivity
from hushgram.sparse_histogram.kept_share import (
    ENDS,
    KeptShare,
    nobody,
    privacy_map,
    release_kept,
    tally_kept,
)
from hushgram.sparse_histogram.spec import ReleaseSpec
from tests.statistics import fits, laplace_pmf

KEY = ReleaseKey(bytes(range(32)))
PARTS = 1 << 10
SETTINGS = {
    "counts": {"max_contributions": 2},
    "per key": {"max_contributions": 3, "max_per_key": 2},
    "classes": {"max_contributions": 2, "delta": "1e-2"},
    "values": {"max_contributions": 8, "max_value": 4, "granularity": 1},
}


def spec_of(name, share="0.1"):
    params = hg.ReleaseParams(epsilon=1, kept_share=share, **SETTINGS[name])
    return ReleaseSpec.of(params, user="user", value="value" if name == "values" else None, release_key=KEY)


def rows_of(spec, users, keys, values=None):
    columns = [] if spec.value is None else [checked_values(values, len(keys))]
    return spec.bounding.contributions(users, keys, columns)


def neighbours(name):
    """All ways to add a user of up to three records over three keys, beside two others."""
    spec = spec_of(name)
    users, keys, values = ["a", "a", "b", "b", "b"], ["x", "y", "x", "x", "z"], [1.0, 0.3, 9.0, 2.5, 1e12]
    base = tally_kept(rows_of(spec, users, keys, values), spec.bounds()).values
    amounts = (0.0, 0.7, 100.0) if name == "values" else (1.0,)
    for size in range(1, 4):
        for more in itertools.product("xyz", repeat=size):
            for added in itertools.product(amounts, repeat=size):
                rows = rows_of(spec, [*users, *"c" * size], [*keys, *more], [*values, *added])
                yield base, tally_kept(rows, spec.bounds()).values


def worst_loss(name):
    """The largest |ln P/P'| over all outputs at ε = 0.1: the L1 distance over the scale, which the noise reaches."""
    scale = 2 * PARTS / Fraction(1, 10)
    return max(float(np.abs(more - base).sum() / scale) for base, more in neighbours(name))


@pytest.mark.parametrize("name", SETTINGS)
def test_one_user_moves_one_cell_of_each_half_by_a_unit(name):
    for base, more in neighbours(name):
        moved = more - base
        assert moved.min() >= 0
        for half in (moved[: len(ENDS)], moved[len(ENDS) :]):
            assert np.count_nonzero(half) <= 1
            assert half.sum() <= PARTS
    assert worst_loss(name) <= 0.1
    assert privacy_map(Fraction(20 * PARTS)) == Fraction(1, 10)


def test_brute_force_rejects_totals_per_part():
    """The broken twin: users in the cells of each part (batch) by itself, so that one of them lies in several."""
    spec = spec_of("counts")
    moved = np.zeros(2 * len(ENDS), np.int64)
    for keys in (["x"], ["x", "y"], [f"{i}" for i in range(9)]):  # parts of one user
        moved += tally_kept(rows_of(spec, ["c"] * len(keys), keys), spec.bounds()).values
    assert np.count_nonzero(moved[: len(ENDS)]) > 1
    assert moved.sum() > 2 * PARTS


def test_exact_enumeration_of_the_noise():
    """Every output of one number in a window: a move of d changes its log-probability by at most d/scale."""
    scale = 40.0
    for moved in (1, 3):
        ratios = [laplace_pmf(scale, z) / laplace_pmf(scale, z - moved) for z in range(-60, 61)]
        assert max(map(abs, map(math.log, ratios))) == pytest.approx(moved / scale)


def test_only_the_stated_sensitivity_is_admitted():
    for moved in (
        Sensitivity(2 * PARTS + 1, PARTS),
        Sensitivity(2 * PARTS, 2 * PARTS),
        Sensitivity(9, 9, "record"),
    ):
        with pytest.raises(ParameterError, match="calibrated"):
            release_kept(ExactVector(nobody().values, moved), Fraction(1), KEY)


def test_every_number_has_the_stated_noise():
    """False alarms: 10^-6 (`fits`); a scale 30 % off is rejected on both sides."""
    seen = []
    for i in range(250):
        released = release_kept(nobody(), Fraction(2 * PARTS, 10), ReleaseKey(i.to_bytes(32, "little")))
        assert released.scale == 10
        seen += [*released.offered, *released.kept]
    assert fits(seen, {z: laplace_pmf(10.0, z) for z in range(-300, 301)})
    assert not fits(seen, {z: laplace_pmf(13.0, z) for z in range(-300, 301)})
    assert not fits(seen, {z: laplace_pmf(10.0 / 1.3, z) for z in range(-300, 301)})


@pytest.mark.parametrize("name", SETTINGS)
def test_parts_of_a_user_do_not_matter(name):
    """Rows in any number of parts, pruned, split by users and merged in any way, give the same tally."""
    rng, spec = np.random.default_rng(3), spec_of(name)
    users, keys, values = rng.integers(0, 60, 600), rng.integers(0, 40, 600), rng.lognormal(1, 2, 600)
    whole = tally_kept(rows_of(spec, users, keys, values), spec.bounds())
    for pieces in (2, 9):
        cut = np.array_split(rng.permutation(600), pieces)
        parts = [rows_of(spec, users[at], keys[at], values[at]).prune(*spec.bounding.bounds) for at in cut]
        total = nobody()
        for shard in range(4):
            mine = [part for each in parts for i, part in each.split_users(4) if i == shard]
            once = Contributions.concat(mine[:3]).prune(*spec.bounding.bounds)
            total += tally_kept(Contributions.concat([once, *mine[3:]]), spec.bounds())
        assert total.values.tolist() == whole.values.tolist()


def test_the_tally_is_what_was_there_and_what_is_counted():
    users = [1] * 100 + [2] * 3 + [3]
    keys = [*range(40), *[7] * 60, 1, 1, 2, 5]
    rows = Contributions.of(users, keys, KEY, texts=False, offered=True)
    kept, offered = rows.prune(Bounds(4, 1)).kept_and_offered(Bounds(4, 1))
    assert sorted(zip(offered.tolist(), kept.tolist(), strict=True)) == [(1, 1), (3, 2), (100, 4)]
    assert rows.bounded(Bounds(4, 1)).counts.sum() == kept.sum()


@pytest.mark.long
def test_intervals_hold_the_share():
    """Of 200 releases at most 5 % are outside; more than 12 % has probability below 10^-5 at 5 %."""
    rng = np.random.default_rng(7)
    totals = np.minimum(rng.pareto(1.2, 30_000) * 3 + 1, 50_000).astype(int)
    users = np.repeat(np.arange(len(totals)), totals)
    rows = Contributions.of(users, np.arange(len(users)), KEY, texts=False, offered=True)
    tally = tally_kept(rows, Bounds(8, 1))
    outside = seen = 0
    for i in range(200):
        found = release_kept(tally, Fraction(1, 10), ReleaseKey(i.to_bytes(32, "big"))).estimate(8)
        if found is None:
            continue
        held = totals[totals <= found.up_to]
        truth = np.minimum(held, 8).sum() / held.sum()
        outside += not found.low - 0.011 <= truth <= found.high + 0.011  # the grid of shares
        seen += 1
        assert found.low <= found.share <= found.high
        assert found.up_to >= 32
    assert seen >= 180
    assert outside / seen < 0.12


def test_few_users_are_not_told_from_noise():
    released = release_kept(nobody(), Fraction(1, 100), KEY)
    assert released.estimate(8) is None
    assert "noise hides" in released.in_words(8)
    assert KeptShare.from_dict(released.to_dict()) == released
    for field, wrong in (
        ("at_most", [1, 2]),
        ("offered", [1]),
        ("scale", "0"),
        ("parts", 7),
        ("kept", ["a"] * 21),
    ):
        with pytest.raises(ParameterError):
            KeptShare.from_dict({**released.to_dict(), field: wrong})


def test_parameters():
    for wrong, told in (("-0.1", "from 0 to"), ("0.6", "from 0 to"), ("1e-9", "raise it")):
        with pytest.raises(ParameterError, match=told):
            hg.ReleaseParams(epsilon=1, max_contributions=8, kept_share=wrong)
    assert hg.ReleaseParams(
        epsilon=2, max_contributions=8, kept_share="0.05"
    ).resolve().split.kept == Fraction(1, 10)
    params = hg.ReleaseParams(epsilon=1, max_contributions=1, kept_share="0.01")
    assert hg.ReleaseParams.from_dict(params.to_dict()) == params
    for call in (
        lambda: hg.release(None, ["a"], params),
        lambda: hg.release_public(["u"], ["a"], ["a"], params),
        lambda: hg.release_histogram(["a"], [1], params),
    ):
        with pytest.raises(ParameterError, match="kept_share"):
            call()
