"""Coverage of the confidence intervals, exactly: the sum over all outcomes, for every true count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hushgram.decoding import AlpEvidence
from hushgram.decoding.alp import Patterns, pack_bits
from hushgram.decoding.confidence import Confidence
from hushgram.decoding.posterior import Outcomes, Posterior
from hushgram.decoding.prior import fit_prior

from .worlds import made, patterns


def coverage(alp: AlpEvidence, intervals: Any, counts: np.ndarray, span: int = 200) -> np.ndarray:
    """P(interval holds x | x), summed over every pattern and every value."""
    words = pack_bits(patterns(alp.levels))
    bits = alp.rounding(counts) @ np.exp(alp.log_patterns(words)).T
    low, high = intervals(Outcomes(words, np.full(len(words), -1)))
    held = (low <= counts[:, None]) & (counts[:, None] <= high)
    total = (bits * held).sum(axis=1) * alp.released.hidden(counts)
    for value in range(alp.released.bound, alp.released.bound + span):
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
    alp = made(**COLUMNS[columns], cells=cells)
    table = Confidence(alp.released, alp, fit_prior(alp.released, alp), level, zero)
    counts = np.arange(0.0 if zero else 1.0, 120.0)
    held = coverage(alp, table.interval, counts)
    assert held.min() >= level - 1e-6
    assert held.mean() <= level + 0.6 * (1.0 - level)  # and not much more


def test_coarse_counts_keep_the_level() -> None:
    """With noise of 40 counts, candidate counts and values are taken together in steps of five."""
    alp = made(bound=300, noise=40.0, width=90.0, listed=[310, 350, 4000])
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
