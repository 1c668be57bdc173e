"""Coverage of the confidence intervals, exactly: the sum over all outcomes, for every true count."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushgram.decoding import AlpLikelihood
from hushgram.decoding.alp import Patterns, pack_bits
from hushgram.decoding.confidence import Confidence, OutcomeTable
from hushgram.decoding.posterior import Outcomes, Posterior
from hushgram.decoding.prior import fit_prior
from hushgram.noise.laws import GaussianLaw, LaplaceLaw

from .worlds import made, patterns, simulate, zipf


def coverage(alp: AlpLikelihood, intervals: Any, counts: np.ndarray, span: int = 200) -> np.ndarray:
    """P(interval holds x | x), summed over every pattern and every value."""
    words = pack_bits(patterns(alp.levels))
    bits = alp.rounding(counts) @ np.exp(alp.log_patterns(words)).T
    low, high = intervals(Outcomes(words, np.full(len(words), -1)))
    held = (low <= counts[:, None]) & (counts[:, None] <= high)
    total = (bits * held).sum(axis=1) * alp.released.hidden(counts)
    for value in range(alp.released.threshold, alp.released.threshold + span):
        low, high = intervals(Outcomes(words, np.full(len(words), value)))
        held = (low <= counts[:, None]) & (counts[:, None] <= high)
        total += (bits * held).sum(axis=1) * alp.released.value(np.array([float(value)]), counts)[0]
    return np.asarray(total)


COLUMNS = {
    "none": {"sizes": [], "ones": []},
    "one": {"sizes": [1000], "ones": [400], "width": 20.0},
    "four": {},
    "full": {"ones": [1000, 700, 500, 400]},
    "seven": {"sizes": [900] * 7, "ones": [500, 450, 400, 350, 300, 250, 200], "width": 2.7},
}


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize(("zero", "cells"), [(False, 2.0**20), (True, 2.0**20), (True, None)])
def test_every_count_is_held_at_least_at_the_level(
    columns: str, level: float, zero: bool, cells: float | None
) -> None:
    alp = made(**COLUMNS[columns], domain_size=cells)
    table = Confidence(alp.released, alp, fit_prior(alp.released, alp), level, zero)
    counts = np.arange(0.0 if zero else 1.0, 120.0)
    held = coverage(alp, table.interval, counts)
    assert held.min() >= level - 1e-6
    assert held.mean() <= level + 0.6 * (1.0 - level)  # and not much more


def test_coarse_counts_keep_the_level() -> None:
    """With noise of 40 counts, candidate counts and values are taken together in steps of five."""
    alp = made(threshold=300, noise=40.0, width=90.0, listed=[310, 350, 4000])
    table = Confidence(alp.released, alp, fit_prior(alp.released, alp), 0.95, zero=False)
    held = coverage(alp, table.interval, np.arange(1.0, 900.0, 2.0), span=1200)
    assert held.min() >= 0.95 - 2e-3


def test_many_columns_are_counted_in_groups() -> None:
    levels = 7  # one more than are enumerated one by one
    alp = made(sizes=[500] * levels, ones=[200] * levels, width=18 / levels)
    alp.patterns = Patterns(alp, enumerate_up_to=6)
    table = Confidence(alp.released, alp, fit_prior(alp.released, alp), 0.95, zero=False)
    assert alp.patterns.chance.sum(axis=0) == pytest.approx(np.ones(levels + 1))
    counts = np.arange(1.0, 60.0)
    assert coverage(alp, table.interval, counts, span=60).min() >= 0.95 - 1e-6


def test_the_code_of_a_pattern_has_the_patterns_probability() -> None:
    for levels in (5, 9):
        alp = made(sizes=[500] * levels, ones=[200] * levels, width=18 / levels)
        bits = Patterns(alp, enumerate_up_to=6)
        words = pack_bits(patterns(levels))
        chance = np.exp(alp.log_patterns(words))
        summed = np.zeros_like(bits.chance)
        np.add.at(summed, bits.code(words), chance)
        assert summed == pytest.approx(bits.chance)


def test_credible_intervals_would_not_pass() -> None:
    """The broken twin: right on average over the prior, they miss counts that are rare."""
    alp = made()
    posterior = Posterior(alp.released, alp, fit_prior(alp.released, alp), 1.0)
    held = coverage(alp, lambda outcomes: posterior.interval(outcomes, 0.95), np.arange(1.0, 120.0))
    assert held.min() < 0.9


# Intervals of keys that were chosen by looking -------------------------------------------------------------------


def misses(alp: AlpLikelihood, table: Confidence, counts: np.ndarray, span: int = 400) -> tuple[Any, Any]:
    """P(interval misses x | x) of keys that are not listed and of listed ones; summed as such, so no digit is lost."""
    words = pack_bits(patterns(alp.levels))
    bits = alp.rounding(counts) @ np.exp(alp.log_patterns(words)).T
    low, high = table.interval(Outcomes(words, np.full(len(words), -1)))
    outside = (low > counts[:, None]) | (counts[:, None] > high)
    hidden, listed = (bits * outside).sum(axis=1) * alp.released.hidden(counts), np.zeros(len(counts))
    for value in range(alp.released.threshold, alp.released.threshold + span):
        low, high = table.interval(Outcomes(words, np.full(len(words), value)))
        outside = (low > counts[:, None]) | (counts[:, None] > high)
        listed += (bits * outside).sum(axis=1) * alp.released.value(np.array([float(value)]), counts)[0]
    return hidden, listed


@pytest.mark.parametrize("among", [20, 10**4, 10**7, 10**10])
@pytest.mark.parametrize("cells", [None, 2.0**60])
def test_among_many_every_count_is_missed_by_at_most_its_share(among: int, cells: float | None) -> None:
    alp = made(domain_size=cells)
    table = Confidence(alp.released, alp, fit_prior(alp.released, alp), 0.95, True, among)
    counts = np.arange(0.0, 200.0)
    assert np.all(np.add(*misses(alp, table, counts)) <= 0.05 / among * (1.0 + 1e-6))


@pytest.mark.parametrize("law", [LaplaceLaw(40.0), GaussianLaw(40.0)])
@pytest.mark.parametrize("among", [1, 1_000, 10**8])
@pytest.mark.long
def test_coarse_counts_keep_their_share_whatever_the_noise(law: Any, among: int) -> None:
    """Counts and values are taken together in steps of five, over which thin Gaussian tails change most."""
    coarse = made(threshold=300, noise=40.0, width=90.0, listed=[310, 350, 4000], domain_size=None)
    released = replace(coarse.released, noise=law)
    alp = AlpLikelihood(released, flip=0.2, width=90.0, sizes=coarse.sizes, ones=coarse.ones)
    table = Confidence(released, alp, fit_prior(released, alp), 0.95, True, among)
    counts = np.arange(0.0, 1500.0, 7.0)
    assert np.all(np.add(*misses(alp, table, counts, span=3_000)) <= 0.05 / among * 1.04)


@pytest.mark.parametrize("number", [1, 30, 3_000])
@pytest.mark.parametrize("cells", [None, 2.0**20])
def test_intervals_of_listed_keys_hold_at_once(number: int, cells: float | None) -> None:
    """By the two bounds of the proof: given that the count is listed, or in any case."""
    alp = made(domain_size=cells)
    table = Confidence(alp.released, alp, fit_prior(alp.released, alp), 0.95, True, number, listed=True)
    counts = np.arange(0.0 if cells else 1.0, 200.0)
    shares = 1.0 - alp.released.hidden(counts)
    most = np.maximum(0.9 * 0.05 / number * shares, 0.0025 / (cells or alp.released.keys))
    assert np.all(misses(alp, table, counts)[1] <= most * (1.0 + 1e-6))


def test_ordinary_intervals_of_false_keys_would_not_pass() -> None:
    """The broken twin: of listed keys that are empty cells, hardly any ordinary interval holds 0."""
    alp = made()
    table = Confidence(alp.released, alp, fit_prior(alp.released, alp), 0.95, True)
    zero = np.zeros(1)
    assert misses(alp, table, zero)[1][0] > 0.9 * (1.0 - alp.released.hidden(zero))[0]


@pytest.mark.parametrize("law", [LaplaceLaw(2.0), GaussianLaw(3.0)])
def test_outcomes_of_unlikely_counts_keep_their_digits(law: Any) -> None:
    alp = made()
    released = replace(alp.released, noise=law)
    table, counts = OutcomeTable(released, alp, 60), np.array([0.0, 18.0, 60.0, 70.0])
    chances = table.chances(counts)
    ranges = chances[:, table.hidden :]
    wide = np.arange(table.step)
    exact = law.pmf(table.cuts[:-1, None, None] + wide - counts[:, None]).sum(axis=2).T
    assert exact[exact > 0].min() < 1e-14
    assert ranges[:, :-1] == pytest.approx(exact, rel=1e-6, abs=1e-30)
    below = [math.fsum(law.pmf(np.arange(-400.0, released.threshold) - x)) for x in counts]
    assert released.hidden(counts) == pytest.approx(below, rel=1e-6)


# Estimates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize(("noise", "cells"), [(2.0, 2.0**20), (2.0, None), (40.0, 2.0**20)])
def test_the_estimate_lies_in_the_interval_of_every_level(
    columns: str, noise: float, cells: float | None
) -> None:
    """For every pattern and value, without moving an end: the estimate of a level near 0 is that of 99 %."""
    changes = {"threshold": 300, "listed": [310, 4000]} if noise > 2.0 else {}
    alp = made(**{**COLUMNS[columns], **changes, "noise": noise}, domain_size=cells)
    prior, words = fit_prior(alp.released, alp), pack_bits(patterns(alp.levels))
    values = [
        -1,
        *range(alp.released.threshold, alp.released.threshold + 20 * int(noise), max(int(noise), 1)),
    ]
    for level in (0.5, 0.95, 0.99):
        table = Confidence(alp.released, alp, prior, level, True)
        for value in values:
            outcomes = Outcomes(words, np.full(len(words), value))
            (low, high), middle = table.interval(outcomes), table.estimate(outcomes)
            assert np.all((low <= middle) & (middle <= high))


def test_the_estimate_of_a_listed_key_is_about_its_value() -> None:
    """Counts well above the threshold: as often above the truth as below it."""
    alp = made(threshold=300, noise=40.0, width=90.0, listed=[310, 350, 4000])
    table = Confidence(alp.released, alp, fit_prior(alp.released, alp), 0.95, True)
    words = pack_bits(patterns(alp.levels))[-1:]
    values = np.arange(600, 4_000, 50)
    middle = np.array([table.estimate(Outcomes(words, np.array([value])))[0] for value in values])
    assert np.abs(middle - values).max() <= 40.0 / 8 + 1


def test_a_posterior_mean_would_not_pass() -> None:
    """The broken twin: rare counts are drawn to what most keys have, outside their intervals."""
    world = simulate(zipf(20_000, 400_000), contributions=8)
    estimate, low, high = world.decoder.estimate(*world.lookups())
    assert np.all((low <= estimate) & (estimate <= high))
    mean = world.decoder.estimate(*world.lookups(), estimator="posterior")[0]
    assert np.mean((mean < low) | (mean > high)) > 0.001


SHAPES = {
    "zipf 0.8": lambda rng: zipf(20_000, 400_000, 0.8),
    "zipf 1.1": lambda rng: zipf(20_000, 400_000),
    "zipf 1.5": lambda rng: zipf(20_000, 400_000, 1.5),
    "log-normal": lambda rng: np.ceil(rng.lognormal(1.5, 1.4, 20_000)).astype(np.int64),
    "uniform": lambda rng: rng.integers(1, 201, 20_000),
    "geometric": lambda rng: rng.geometric(1 / 12, 20_000),
    "two points": lambda rng: np.where(rng.random(20_000) < 0.5, 5, 200),
    "three points": lambda rng: rng.choice([2, 7, 60], 20_000),
    "ones": lambda rng: np.ones(20_000, np.int64),
}


@pytest.mark.parametrize("contributions", [1, 8])
@pytest.mark.parametrize("shape", SHAPES)
def test_coverage_in_every_range_and_no_estimate_outside(shape: str, contributions: int) -> None:
    """0.94 to 0.985 in every range with enough keys, absent keys included; a false alarm of 5 deviations each."""
    counts = np.append(SHAPES[shape](np.random.default_rng(5)), np.zeros(10_000, np.int64))
    world = simulate(counts, contributions=contributions)
    estimate, low, high = world.decoder.estimate(*world.lookups())
    assert np.all((low <= estimate) & (estimate <= high))
    resolved = world.decoder.resolved(*world.lookups())
    assert np.array_equal(resolved, high - low <= estimate)
    held = (low <= counts) & (counts <= high)
    for least, most in ((0, 0), (1, 10), (11, 100), (101, 1_000), (1_001, 1 << 60)):
        rows = (counts >= least) & (counts <= most)
        if (number := np.count_nonzero(rows)) >= 30:
            room = 5.0 * (0.05 * 0.95 / number) ** 0.5
            assert 0.94 - room <= held[rows].mean() <= 0.985 + room, (least, most)
