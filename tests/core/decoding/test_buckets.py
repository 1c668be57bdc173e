"""Likelihood of noisy buckets against the definition, and answers on simulated releases of known counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
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
    likelihood: BucketLikelihood
    found: np.ndarray
    values: np.ndarray
    listed: np.ndarray

    @property
    def decoder(self) -> Decoder:
        return Decoder(self.likelihood.released, self.likelihood)

    def lookups(self, chosen: Any = slice(None)) -> tuple[Any, Any, Any]:
        return self.found[chosen], self.values[chosen], self.listed[chosen]


def draw(rng: np.random.Generator, noise: str, scale: float, size: int) -> np.ndarray:
    if noise == "laplace":
        return laplace(rng, scale, size)
    return np.rint(rng.normal(0.0, scale, size)).astype(
        np.int64
    )  # near enough to the discrete one for a test


@cache
def simulate(noise: str, contributions: int, pure: bool, share: float = 1.0, seed: int = 1) -> World:
    """Counts in 2 buckets a key; ``share`` of the buckets is given to the decoder as a sample."""
    rng = np.random.default_rng(seed)
    scale = 2.0 * contributions if noise == "laplace" else 6.0 * math.sqrt(contributions)
    law = noise_of(noise).law(scale)
    size, step = 2 * KEYS, int(scale / 4) * 2 + 1
    cells = 2.0**28 if pure else None
    allowed = 0.03 * KEYS / cells if cells else 1e-6
    threshold = next(t for t in range(1, 10**6) if law.tail(np.array([float(t)]))[0] <= allowed)
    place = rng.integers(0, size, len(COUNTS))
    levels = np.bincount(place, COUNTS, minlength=size).astype(np.int64) + draw(rng, noise, scale, size)
    levels = (levels + step // 2) // step
    noisy = COUNTS + draw(rng, noise, scale, len(COUNTS))
    listed = (noisy >= threshold) & (pure | (COUNTS > 0))
    false = rng.poisson(allowed * cells) if cells else 0
    zeros = (
        threshold + rng.geometric(1.0 - math.exp(-1.0 / scale), false) - 1
    )  # Laplace noise beyond the bound
    real = listed & (COUNTS > 0)
    profile = np.array([np.count_nonzero(t <= COUNTS) for t in PROFILE_GRID], np.float64)
    released = ReleasedNumbers(
        threshold=threshold,
        noise=law,
        listed=np.append(noisy[real], zeros[:false]),
        domain_size=cells,
        records=float(COUNTS.sum()),
        profile_at=np.array(PROFILE_GRID),
        profile=profile + laplace(rng, 100.0 * contributions, len(profile)),
        profile_noise=100.0 * contributions,
        keys=float(KEYS),
    )
    likelihood = BucketLikelihood(
        released,
        noise=law,
        step=step,
        size=size,
        places=np.append(place[real], rng.integers(0, size, false)),
        sample=levels[: int(size * share)],
        total=int(levels.sum()),
    )
    return World(likelihood, np.stack([place, levels[place]], axis=1), np.where(listed, noisy, 0), listed)


CASES = [("laplace", 1, True), ("laplace", 8, True), ("laplace", 8, False), ("gaussian", 8, False)]


def within(low: int, high: int) -> np.ndarray:
    return np.flatnonzero((low <= COUNTS) & (high >= COUNTS))


@pytest.mark.parametrize("case", CASES)
def test_confidence_intervals_hold_in_every_range(case: Any) -> None:
    world = simulate(*case)
    _, low, high = world.decoder.estimate(*world.lookups())
    for least, most in RANGES:
        rows = within(least, most)
        held = np.mean((low[rows] <= COUNTS[rows]) & (high[rows] >= COUNTS[rows]))
        assert held > 0.94 - 3.0 * math.sqrt(0.05 * 0.95 / len(rows)), (least, held)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_the_unbiased_estimate_is_unbiased_and_knows_its_variance(case: Any, share: float) -> None:
    world = simulate(*case, share)
    decoder = world.decoder
    lookups = decoder._lookups(*world.lookups())
    estimate, variance = world.likelihood.unbiased(lookups.symbols, lookups.values, lookups.listed)
    for least, most in RANGES:
        rows = within(least, most)
        error = (estimate - COUNTS)[rows]
        assert abs(error.mean()) < 4.0 * error.std() / math.sqrt(len(rows)) + 0.02 * error.std()
        assert np.mean(error**2) == pytest.approx(variance[rows].mean(), rel=0.15)


@pytest.mark.parametrize("case", CASES)
def test_a_listed_key_is_read_twice(case: Any) -> None:
    """Far above the threshold the error is less than that of the list alone, and intervals hold."""
    world = simulate(*case)
    rows = np.flatnonzero(world.listed & (3 * world.likelihood.released.threshold < COUNTS))
    estimate, low, high = world.decoder.estimate(*world.lookups(rows))
    error = np.mean((estimate - COUNTS[rows]) ** 2)
    assert error < 0.9 * np.mean((world.values[rows] - COUNTS[rows]) ** 2)
    assert np.mean((low <= COUNTS[rows]) & (high >= COUNTS[rows])) > 0.9


def test_totals_hold_for_any_set() -> None:
    world, rng = simulate("laplace", 8, True), np.random.default_rng(3)
    decoder = world.decoder
    for least, most in ((0, 0), (1, 10), (1, 10**9), (0, 10**9)):
        held = []
        for _ in range(50):
            chosen = rng.choice(within(least, most), 150, replace=False)
            _, low, high = decoder.total(*world.lookups(chosen))
            held.append(low <= COUNTS[chosen].sum() <= high)
        assert np.mean(held) > 0.86, least


def test_likelihoods_are_those_of_background_and_count() -> None:
    """P(value | x) against the shares of buckets that show it, for keys of one count."""
    world = simulate("laplace", 1, True)
    rows = within(1, 1)
    symbols = world.decoder._lookups(*world.lookups()).symbols[rows]
    alone = symbols[symbols % 2 == 0]
    seen, number = np.unique(alone, return_counts=True)
    chance = world.likelihood.factors(seen, np.array([1.0]))[0][:, 0]
    often = number >= 200
    assert number[often] / len(alone) == pytest.approx(chance[often], rel=0.25)
    assert world.likelihood.factors(world.likelihood.every_symbol(), np.array([0.0, 5.0]))[0].sum(
        axis=0
    ) == pytest.approx([1.0, 1.0], abs=1e-3)


def test_classes_are_partitions() -> None:
    world = simulate("laplace", 8, True)
    counts = np.array([0.0, 3.0, 60.0])
    likelihood, values = world.likelihood, np.array([threshold_of(world), threshold_of(world) + 50.0])
    hidden = likelihood.released.hidden(counts)
    assert likelihood.hidden_classes(counts).sum(axis=1) == pytest.approx(hidden)
    assert likelihood.listed_classes(counts, values).sum(axis=2) == pytest.approx(np.ones((3, 2)))
    lookups = world.decoder._lookups(*world.lookups())
    assert likelihood.hidden_class(lookups.symbols).max() < likelihood.hidden_classes(counts).shape[1]


def threshold_of(world: World) -> float:
    return float(world.likelihood.released.threshold)


def test_real_keys_are_told_from_empty_cells() -> None:
    world = simulate("laplace", 8, True)
    rows = np.flatnonzero(world.listed)
    real = world.decoder.real(*world.lookups(rows))
    shown = real >= 0.95
    assert np.mean(COUNTS[rows][shown] > 0) > 0.93
    assert shown.sum() > 0.8 * np.count_nonzero(world.likelihood.released.threshold < COUNTS)


def test_what_another_sketch_found_is_refused() -> None:
    world = simulate("laplace", 1, True)
    with pytest.raises(ParameterError, match="look all of them up in the same sketch"):
        world.decoder.estimate(np.array([[10**9, 0]]), [0], [False])
    with pytest.raises(ParameterError, match="step is wrong"):
        BucketLikelihood(
            world.likelihood.released,
            noise=world.likelihood.noise,
            step=2,
            size=9,
            places=[],
            sample=[0],
            total=0,
        )


@pytest.mark.parametrize("empty", [0, 1])
def test_few_buckets_and_no_list(empty: int) -> None:
    released = ReleasedNumbers(
        threshold=30, noise=noise_of("laplace").law(4.0), listed=[31] * empty, domain_size=2.0**16, records=5.0,
        profile_at=[], profile=[], profile_noise=0.0, keys=3.0,
    )  # fmt: skip
    likelihood = BucketLikelihood(
        released,
        noise=noise_of("laplace").law(4.0),
        step=1,
        size=64,
        places=[3] * empty,
        sample=[0] * 64,
        total=0,
    )
    decoder = Decoder(released, likelihood)
    found = np.array([[3, 2], [5, 40], [6, -(10**9)], [7, 10**9]])
    for estimator in ("posterior", "argmax", "unbiased"):
        answer = decoder.estimate(found, [31, 0, 0, 0], [True, False, False, False], estimator=estimator)
        assert np.all(np.isfinite(answer))
    assert np.all(np.isfinite(decoder.total(found, [31, 0, 0, 0], [True, False, False, False])))
