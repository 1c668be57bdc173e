"""Error, coverage and totals on real releases, against bounds that can fail (and do, for broken twins)."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import hushgram as hg
from hushgram.decoding import AlpEvidence, Decoder

from .worlds import simulate, zipf

KEYS = 40_000
COUNTS = zipf(KEYS, 9e5)
NAMES = pa.array([f"/page/{number}" for number in range(KEYS)])
RANGES = ((1, 10), (11, 40), (41, 87), (88, 10**9))


@cache
def sketch(paper: bool = False) -> hg.Sketch:
    known = {"expected_records": int(COUNTS.sum()), "expected_keys": KEYS}
    params = (
        hg.ReleaseParams.paper(epsilon="1", max_contributions=1, **known)
        if paper
        else hg.ReleaseParams(epsilon="1", max_contributions=1)
    )
    return hg.release_histogram(NAMES, COUNTS, params, release_key=hg.ReleaseKey(bytes([7] * 32)))


def rmse(paper: bool, estimator: str) -> float:
    table = sketch(paper).estimate(NAMES, estimator=estimator, interval=None)
    return float(np.sqrt(np.mean((table["estimate"].to_numpy() - COUNTS) ** 2)))


def test_the_default_has_less_than_0_4_of_the_papers_error() -> None:
    ours, theirs = rmse(False, "posterior"), rmse(True, "argmax")
    assert ours < 0.4 * theirs
    assert 10.0 < theirs < 13.0  # and the paper's is what it should be
    assert rmse(False, "argmax") > 1.5 * ours  # the bound can fail


def test_no_estimate_is_biased_over_all_keys() -> None:
    for estimator in ("posterior", "unbiased"):
        table = sketch().estimate(NAMES, estimator=estimator, interval=None)
        assert abs(float(np.mean(table["estimate"].to_numpy() - COUNTS))) < 0.25


@pytest.mark.parametrize("paper", [False, True])
def test_confidence_intervals_hold_in_every_range(paper: bool) -> None:
    table = sketch(paper).estimate(NAMES)
    held = (table["low"].to_numpy() <= COUNTS) & (table["high"].to_numpy() >= COUNTS)
    for low, high in RANGES:
        inside = held[(low <= COUNTS) & (high >= COUNTS)]
        assert inside.mean() > 0.94 - 3.0 * np.sqrt(0.05 * 0.95 / len(inside))


def test_credible_intervals_hold_over_all_keys() -> None:
    table = sketch().estimate(NAMES, interval="credible")
    held = (table["low"].to_numpy() <= COUNTS) & (table["high"].to_numpy() >= COUNTS)
    assert 0.93 < held.mean() < 0.98


@pytest.mark.parametrize("size", [30, 1_000])
def test_totals_of_random_sets(size: int) -> None:
    rng = np.random.default_rng(4)
    sets = [rng.choice(KEYS, size, replace=False) for _ in range(120)]
    truth = np.array([COUNTS[chosen].sum() for chosen in sets])
    totals = [sketch().total(NAMES.take(pa.array(chosen))) for chosen in sets]
    held = np.array([t.low <= x <= t.high for t, x in zip(totals, truth, strict=True)])
    assert held.mean() > 0.88
    if size == 1_000:
        error = np.array([t.estimate for t in totals]) / truth - 1.0
        assert np.sqrt(np.mean(error**2)) < 0.06
        assert abs(error.mean()) < 0.03


@pytest.mark.parametrize("name", ["geometric", "two points", "steep"])
def test_totals_hold_for_other_distributions(name: str) -> None:
    counts = {
        "geometric": np.random.default_rng(0).geometric(0.1, KEYS),
        "two points": np.where(np.arange(KEYS) % 2, 3, 15),
        "steep": zipf(KEYS, 9e5, 1.5),
    }[name]
    world = simulate(counts.astype(np.int64))
    decoder, rng = world.decoder, np.random.default_rng(5)
    held = []
    for _ in range(150):
        chosen = rng.choice(KEYS, 1_000, replace=False)
        _, low, high = decoder.total(*world.lookups(chosen))
        held.append(low <= counts[chosen].sum() <= high)
    assert np.mean(held) > 0.89


def test_any_set_has_an_unbiased_total() -> None:
    """Keys of 11 to 40 are not like a random sample: the posterior total is short of theirs, the unbiased is not."""
    world = simulate(COUNTS)
    chosen = np.flatnonzero((COUNTS >= 11) & (COUNTS <= 20))
    truth = float(COUNTS[chosen].sum())
    _, low, high = world.decoder.total(*world.lookups(chosen), estimator="unbiased")
    assert low <= truth <= high
    assert world.decoder.total(*world.lookups(chosen))[2] < truth


def test_wrong_loads_are_noticed() -> None:
    """The broken twin: a decoder that takes the columns for empty misses the bounds above."""
    world = simulate(COUNTS)
    honest, sizes = world.evidence, world.evidence.sizes
    empty = AlpEvidence(
        world.released, flip=honest.flip, width=honest.width, sizes=sizes, ones=(sizes * 0.2).astype(np.int64)
    )
    broken = Decoder(world.released, empty)
    error = broken.estimate(*world.lookups(), interval=None)[0] - COUNTS
    usual = world.decoder.estimate(*world.lookups(), interval=None)[0] - COUNTS
    assert abs(error.mean()) > 10 * abs(usual.mean())
    assert np.sqrt(np.mean(error**2)) > np.sqrt(np.mean(usual**2))
