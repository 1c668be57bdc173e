"""The posterior against Bayes' rule written out over every count, and its intervals."""

from __future__ import annotations

import numpy as np
import pytest

from hushgram.decoding.alp import pack_bits
from hushgram.decoding.constants import SPARE
from hushgram.decoding.posterior import Outcomes, Posterior, near_limit
from hushgram.decoding.prior import fit_prior

from .worlds import made, patterns


def by_hand(posterior: Posterior, bits: np.ndarray, value: int) -> np.ndarray:
    """Posterior weights of the atoms, one outcome at a time: of a listed key the value alone counts."""
    alp, weight = posterior.likelihood, np.zeros(len(posterior.at))
    for index, (x, mass) in enumerate(zip(posterior.at, posterior.mass, strict=True)):
        one = np.array([x])
        if value < 0:
            likely = alp.rounding(one)[0] @ np.exp(alp.log_patterns(pack_bits(bits[None, :]))[0])
            likely *= alp.released.hidden(one)[0]
        else:
            likely = alp.released.value(np.array([float(value)]), one)[0, 0]
        weight[index] = mass * likely
    return weight / weight.sum()


@pytest.mark.parametrize("cells", [2.0**20, None])
@pytest.mark.parametrize("present", [1.0, 0.4])
def test_moments_and_intervals_follow_bayes_rule(present: float, cells: float | None) -> None:
    alp = made(domain_size=cells)
    posterior = Posterior(alp.released, alp, fit_prior(alp.released, alp), present)
    rows = patterns(4)[[0, 3, 5, 15]]
    for value in (-1, 18, 24, 45):
        outcomes = Outcomes(pack_bits(rows), np.full(len(rows), value))
        mean, variance, third = posterior.moments(outcomes)
        low, high = posterior.interval(outcomes, 0.9)
        least = 1.0 - posterior._spare(0.9)  # what a range must hold, so that the average is right
        assert 1.0 - SPARE * 0.1 - 1e-9 <= least <= 0.9
        for index, bits in enumerate(rows):
            weight = by_hand(posterior, bits, value)
            centre = weight @ posterior.at
            assert mean[index] == pytest.approx(centre)
            assert variance[index] == pytest.approx(weight @ (posterior.at - centre) ** 2)
            assert third[index] == pytest.approx(weight @ (posterior.at - centre) ** 3, abs=1e-6)
            inside = (posterior.low >= low[index]) & (posterior.high <= high[index])
            assert weight[inside].sum() >= least - 1e-9
            ends = np.flatnonzero(inside)[[0, -1]]
            assert weight[inside].sum() - weight[ends].min() < least  # not one atom more than needed


def test_credible_intervals_hold_their_level_on_average() -> None:
    """Over all patterns of keys that are not listed, weighted as the prior expects them."""
    alp = made()
    posterior = Posterior(alp.released, alp, fit_prior(alp.released, alp), 1.0)
    rows = patterns(4)
    outcomes = Outcomes(pack_bits(rows), np.full(len(rows), -1))
    low, high = posterior.interval(outcomes, 0.9)
    held = total = 0.0
    for index, bits in enumerate(rows):
        likely = alp.rounding(posterior.at) @ np.exp(alp.log_patterns(pack_bits(bits[None, :]))[0])
        weight = posterior.mass * alp.released.hidden(posterior.at) * likely
        inside = (posterior.low >= low[index]) & (posterior.high <= high[index])
        held, total = held + weight[inside].sum(), total + weight.sum()
    assert 0.9 <= held / total <= 0.97


def test_a_key_that_may_be_absent_counts_less() -> None:
    alp = made()
    prior = fit_prior(alp.released, alp)
    outcomes = Outcomes(np.array([0]), np.array([-1]))
    sure = Posterior(alp.released, alp, prior, 1.0).moments(outcomes)[0][0]
    unsure = Posterior(alp.released, alp, prior, 0.1).moments(outcomes)[0][0]
    assert 0.0 < unsure < sure
    assert sure >= 1.0


def test_near_and_far_meet() -> None:
    alp = made()
    posterior = Posterior(alp.released, alp, fit_prior(alp.released, alp), 1.0)
    edge = np.array([near_limit(alp.released)])
    near = posterior.moments(Outcomes(np.array([15]), edge))
    far = posterior.far(edge)
    assert near[0] == pytest.approx(far[0], abs=0.8)
    assert near[1] == pytest.approx(far[1], rel=0.3)


def test_listed_keys_are_pulled_down_because_noise_listed_them() -> None:
    alp = made()
    posterior = Posterior(alp.released, alp, fit_prior(alp.released, alp), 1.0)
    assert posterior.moments(Outcomes(np.array([0]), np.array([18])))[0][0] < 18.0
