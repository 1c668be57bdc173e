"""Likelihood of noisy buckets against the definition, and answers on simulated releases of known counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from hushgram.decoding import BucketLikelihood, Decoder, ReleasedNumbers
from hushgram.errors import ParameterError
from hushgram.noise.noises import noise_of
from hushgram.sparse_histogram.sizing import PROFILE_GRID

from .worlds import laplace, zipf

KEYS, ABSENT = 30_000, 20_000
COUNTS = np.append(zipf(KEYS, 6e5), np.zeros(ABSENT, np.int64))
RANGES = ((0, 0), (1, 10), (11, 40), (41, 100), (101, 10**9))


@dataclass
class World:
    """Keys that are not named: those that are stand in no bucket, and their values by themselves."""

    counts: np.ndarray
    likelihood: BucketLikelihood
    found: np.ndarray

    @property
    def decoder(self) -> Decoder:
        return Decoder(self.likelihood.released, self.likelihood)

    def lookups(self, chosen: Any = slice(None)) -> tuple[Any, Any, Any]:
        found = self.found[chosen]
        return found, np.zeros(len(found), np.int64), np.zeros(len(found), bool)

    def within(self, low: int, high: int) -> np.ndarray:
        return np.flatnonzero((low <= self.counts) & (high >= self.counts))


def gaussian(rng: np.random.Generator, scale: float, size: int) -> np.ndarray:
    """Near enough to the discrete one for a test."""
    return np.rint(rng.normal(0.0, scale, size)).astype(np.int64)


@cache
def simulate(contributions: int, share: float = 1.0, seed: int = 1) -> World:
    """Counts of keys that are not named, in 2 buckets a key; ``share`` of the buckets is given to the decoder."""
    rng = np.random.default_rng(seed)
    scale = 6.0 * math.sqrt(contributions)
    law = noise_of("gaussian").law(scale)
    size, step = 2 * KEYS, int(scale / 4) * 2 + 1
    threshold = int(8 * scale)
    named = (COUNTS > 0) & (COUNTS + gaussian(rng, scale, len(COUNTS)) >= threshold)
    counts = COUNTS[~named]
    place = rng.integers(0, size, len(counts))
    levels = np.bincount(place, counts, minlength=size).astype(np.int64) + gaussian(rng, scale, size)
    levels = (levels + step // 2) // step
    profile = np.array([np.count_nonzero(counts >= t) for t in PROFILE_GRID], np.float64)
    released = ReleasedNumbers(
        threshold=threshold,
        noise=law,
        listed=np.zeros(0, np.int64),
        domain_size=None,
        records=float(counts.sum()),
        profile_at=np.array(PROFILE_GRID),
        profile=profile + laplace(rng, 100.0 * contributions, len(profile)),
        profile_noise=100.0 * contributions,
        keys=float(np.count_nonzero(counts)),
    )
    likelihood = BucketLikelihood(
        released, noise=law, step=step, size=size, sample=levels[: int(size * share)], total=int(levels.sum())
    )
    return World(counts, likelihood, np.stack([place, levels[place]], axis=1))


CONTRIBUTIONS = (2, 8, 30)


def ranges(world: World) -> list[tuple[int, int]]:
    """Ranges of counts of enough keys that are not named."""
    return [each for each in RANGES if len(world.within(*each)) >= 80]


@pytest.mark.parametrize("contributions", CONTRIBUTIONS)
def test_confidence_intervals_hold_in_every_range(contributions: int) -> None:
    world = simulate(contributions)
    estimate, low, high = world.decoder.estimate(*world.lookups())
    assert np.all((low <= estimate) & (estimate <= high))
    for least, most in ranges(world):
        rows = world.within(least, most)
        held = np.mean((low[rows] <= world.counts[rows]) & (high[rows] >= world.counts[rows]))
        assert held > 0.94 - 3.0 * math.sqrt(0.05 * 0.95 / len(rows)), (least, held)


@pytest.mark.parametrize("contributions", CONTRIBUTIONS)
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_the_unbiased_estimate_is_unbiased_and_knows_its_variance(contributions: int, share: float) -> None:
    world = simulate(contributions, share)
    lookups = world.decoder._lookups(*world.lookups())
    estimate, variance = world.likelihood.unbiased(lookups.symbols, lookups.values, lookups.listed)
    for least, most in ranges(world):
        rows = world.within(least, most)
        error = (estimate - world.counts)[rows]
        assert abs(error.mean()) < 4.0 * error.std() / math.sqrt(len(rows)) + 0.02 * error.std()
        square = error**2  # a few keys share their bucket with a count in the hundreds
        assert abs(square.mean() - variance[rows].mean()) < 4.0 * square.std() / math.sqrt(len(rows))


def test_totals_hold_for_any_set() -> None:
    world, rng = simulate(8), np.random.default_rng(3)
    for least, most in ((0, 0), (1, 10), (1, 10**9), (0, 10**9)):
        held = []
        for _ in range(50):
            chosen = rng.choice(world.within(least, most), 150, replace=False)
            _, low, high = world.decoder.total(*world.lookups(chosen))
            held.append(low <= world.counts[chosen].sum() <= high)
        assert np.mean(held) > 0.86, least


def test_likelihoods_are_those_of_background_and_count() -> None:
    """P(value | x) against the shares of buckets that show it, for keys of one count."""
    world = simulate(2)
    symbols = world.decoder._lookups(*world.lookups(world.within(1, 1))).symbols
    seen, number = np.unique(symbols, return_counts=True)
    chance = world.likelihood.factors(seen, np.array([1.0]))[0][:, 0]
    often = number >= 200
    assert number[often] / len(symbols) == pytest.approx(chance[often], rel=0.25)
    every = world.likelihood.every_symbol()
    assert every is not None
    found = world.likelihood.factors(every, np.array([0.0, 5.0]))[0].sum(axis=0)
    assert found == pytest.approx([1.0, 1.0], abs=1e-3)


def test_classes_are_a_partition() -> None:
    world = simulate(8)
    counts, likelihood = np.array([0.0, 3.0, 60.0]), world.likelihood
    found = likelihood.hidden_classes(counts)
    assert found.sum(axis=1) == pytest.approx(likelihood.released.hidden(counts))
    symbols = world.decoder._lookups(*world.lookups()).symbols
    assert likelihood.hidden_class(symbols).max() < found.shape[1]


def test_what_another_sketch_found_is_refused() -> None:
    world = simulate(2)
    likelihood, released = world.likelihood, world.likelihood.released
    with pytest.raises(ParameterError, match="look all of them up in the same sketch"):
        world.decoder.estimate(np.array([[10**9, 0]]), [0], [False])
    numbers: dict[str, Any] = {"noise": likelihood.noise, "step": 1, "size": 9, "sample": [0], "total": 0}
    for wrong, reason in (
        ({"step": 2}, "step is wrong"),
        ({"sample": [0] * 10}, "sample is wrong"),
    ):
        with pytest.raises(ParameterError, match=reason):
            BucketLikelihood(released, **{**numbers, **wrong})
    with pytest.raises(ParameterError, match="named keys are in no bucket"):
        BucketLikelihood(replace(released, listed=np.array([10**6])), **numbers)


def test_few_buckets() -> None:
    law = noise_of("gaussian").law(4.0)
    released = ReleasedNumbers(
        threshold=30, noise=law, listed=[], domain_size=None, records=5.0, profile_at=[], profile=[],
        profile_noise=0.0, keys=3.0,
    )  # fmt: skip
    likelihood = BucketLikelihood(released, noise=law, step=1, size=64, sample=[0] * 64, total=0)
    decoder = Decoder(released, likelihood)
    found, no = np.array([[3, 2], [5, 40], [6, -(10**9)], [7, 10**9]]), [False] * 4
    for estimator in ("posterior", "argmax", "unbiased"):
        assert np.all(np.isfinite(decoder.estimate(found, [0] * 4, no, estimator=estimator)))
    assert np.all(np.isfinite(decoder.total(found, [0] * 4, no)))
