"""The fitted prior: close to the truth where the release says enough, sane where it does not."""

from __future__ import annotations

import numpy as np
import pytest

from hushgram.decoding.prior import Prior, atom_edges, fit_prior

from .worlds import made, simulate, zipf


def above(prior: Prior, at: int) -> float:
    """P(x ≥ at), for counts on the support."""
    return float(prior.mass[prior.grid.low >= at].sum())


def check_shape(prior: Prior) -> None:
    assert np.all(prior.mass >= 0.0)
    assert prior.mass.sum() == pytest.approx(1.0)
    assert np.all(prior.grid.low[1:] == prior.grid.high[:-1] + 1)  # no gap, no overlap
    assert prior.grid.low[0] == 1
    assert np.isfinite(prior.doubt)
    assert np.isfinite(prior.variance)


@pytest.mark.parametrize("contributions", [1, 8])
@pytest.mark.parametrize("name", ["zipf", "geometric"])
def test_smooth_distributions_are_found(name: str, contributions: int) -> None:
    counts = zipf(60_000, 1.2e6) if name == "zipf" else np.random.default_rng(0).geometric(0.1, 60_000)
    world = simulate(counts, contributions=contributions)
    prior = fit_prior(world.released, world.likelihood)
    check_shape(prior)
    body = counts[counts <= prior.grid.high[-1]]
    noise = 2.0**0.5 * world.released.profile_noise / len(counts)  # standard deviation of N_t/k
    for at in (2, 3, 5, 8, 16, 30):
        assert above(prior, at) == pytest.approx(np.mean(body >= at), abs=6.0 * noise)
    assert prior.mass @ prior.grid.at == pytest.approx(body.mean(), rel=6.0 * noise)


def test_two_spikes_are_found() -> None:
    counts = np.where(np.arange(60_000) % 2, 3, 15)
    prior = simulate(counts).decoder.prior
    near = {at: above(prior, at) - above(prior, at + 1) for at in (3, 15)}
    assert near[3] == pytest.approx(0.5, abs=0.02)
    assert near[15] > 0.4


def test_without_a_profile_the_loads_and_the_list_speak() -> None:
    counts = zipf(60_000, 1.2e6)
    world = simulate(counts, profile=False)
    prior = fit_prior(world.released, world.likelihood)
    check_shape(prior)
    for at in (8, 16, 24):  # below a level's width the loads say little
        assert above(prior, at) == pytest.approx(np.mean(counts >= at), rel=0.15)


def test_a_wild_profile_does_not_break_the_fit() -> None:
    world = simulate(zipf(20_000, 4e5))
    rng = np.random.default_rng(0)
    wild = rng.normal(0.0, 1e5, len(world.released.profile))
    alp = made(profile_at=world.released.profile_at, profile=wild, profile_noise=1e5, records=-5e6, keys=1.0)
    check_shape(fit_prior(alp.released, alp))


def test_one_lying_number_cannot_take_the_fit_along() -> None:
    world = simulate(zipf(60_000, 1.2e6))
    honest = fit_prior(world.released, world.likelihood)
    world.released.profile[5] += 30_000.0  # N_6, 300 noise scales off
    lied_to = fit_prior(world.released, world.likelihood)
    assert above(lied_to, 3) == pytest.approx(above(honest, 3), rel=0.1)
    assert above(lied_to, 12) == pytest.approx(above(honest, 12), rel=0.1)


@pytest.mark.parametrize(
    ("threshold", "noise", "width"), [(1, 0.01, 1.0), (10**9, 2.0, 1e8), (10**6, 8e4, 2e5), (30, 2.0, 5.0)]
)
def test_ranges_stay_few_and_narrow(threshold: int, noise: float, width: float) -> None:
    alp = made(threshold=threshold, noise=noise, width=width, listed=[])
    top = threshold + int(30 * noise) + 1
    edges = atom_edges(alp.released, alp.grain, top, 16)
    assert len(edges) < 3_000
    assert edges[0] == 1
    assert edges[-1] == top + 1
    assert np.all(np.diff(edges) >= 1)
    close = (edges[:-1] >= threshold - 20 * noise) & (edges[:-1] > 16)
    assert np.all(np.diff(edges)[close] <= max(1.0, noise / 16))
