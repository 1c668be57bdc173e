"""The peers of `benchmarks.users` are as private as is said, and no more than that."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from benchmarks import key_selection_peers as peers

EPSILON, DELTA = 1.0, 1e-6
NORMAL = NormalDist()


def pairs() -> peers.Pairs:
    rng = np.random.default_rng(1)
    return peers.Pairs.of(rng.integers(0, 50, 2_000), rng.zipf(1.5, 2_000) % 100)


def test_gaussian_noise_is_the_least_that_is_private() -> None:
    sigma = peers.gaussian_sigma(EPSILON, DELTA)

    def spent(scale: float) -> float:
        tail = math.exp(EPSILON) * NORMAL.cdf(-1 / (2 * scale) - EPSILON * scale)
        return NORMAL.cdf(1 / (2 * scale) - EPSILON * scale) - tail

    assert spent(sigma) <= DELTA < spent(0.999 * sigma)


@pytest.mark.parametrize("max_keys", [1, 3, 100])
def test_a_users_own_keys_pass_the_weighted_threshold_with_probability_delta(max_keys: int) -> None:
    threshold = peers.weighted_threshold(DELTA, 4.0, max_keys)
    passing = [1 - NORMAL.cdf((threshold - d**-0.5) / 4.0) ** d for d in range(1, max_keys + 1)]
    assert max(passing) == pytest.approx(DELTA, rel=1e-3)


def test_users_are_bounded_and_weigh_one_in_all() -> None:
    kept = pairs().bounded(3, np.random.default_rng(2))
    per_user = np.bincount(kept.users)
    assert per_user.max() == 3
    assert (per_user > 0).sum() == len(np.unique(pairs().users))
    assert len(np.unique(kept.users * 1_000 + kept.keys)) == len(kept.users)
    assert kept.weights().sum() == pytest.approx(np.sqrt(per_user).sum())
    assert not np.isin(kept.without(np.array([1, 2])).keys, [1, 2]).any()


@pytest.mark.parametrize("max_keys", [1, 8])
def test_tumults_threshold_spends_delta_and_one_less_too_much(max_keys: int) -> None:
    scale, threshold = peers.tumult_threshold(max_keys, EPSILON, DELTA)
    far = np.arange(threshold - 1, threshold + 60 * max_keys)
    share = np.exp(-far / scale) * math.tanh(1 / (2 * scale))
    grown = 1 if max_keys == 1 else max_keys * math.exp(EPSILON)
    assert grown * share.sum() <= DELTA < grown * share.sum() * math.exp(1 / scale)


def test_opendp_says_what_is_used_of_it() -> None:
    pytest.importorskip("opendp")
    scale, threshold = peers.opendp_threshold("laplace", 8, EPSILON, DELTA)
    assert scale == pytest.approx(8)
    assert threshold == pytest.approx(1 + 8 * math.log(8 / (2 * DELTA)), rel=1e-3)
    scale, threshold = peers.opendp_threshold("gaussian", 8, EPSILON, DELTA)
    assert scale > math.sqrt(8) * peers.gaussian_sigma(
        EPSILON, DELTA / 2
    )  # zero-concentrated DP is not exact
    assert threshold == pytest.approx(1 + scale * NORMAL.inv_cdf(1 - DELTA / 16), rel=1e-2)


def test_each_selects_what_everybody_has_and_nothing_that_one_user_has() -> None:
    users = np.arange(2_000)
    data = peers.Pairs.of(np.append(users, 7), np.append(np.zeros(2_000, np.int64), 1))
    rng = np.random.default_rng(3)
    assert peers.weighted_gaussian(data, 2, EPSILON, DELTA, rng) == 1
    assert peers.dp_sips(data, 2, EPSILON, DELTA, rng) == 1
    for noise in ("laplace", "gaussian", "geometric"):
        assert peers.count_threshold(data, 2, (noise, 8.0), 150, rng) == 1
