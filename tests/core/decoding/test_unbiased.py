"""argmax as the paper states it; the unbiased estimate by exact expectation over all outcomes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgram.decoding.alp import AlpLikelihood, argmax_levels, pack_bits

from .worlds import decoder, made, patterns


def test_the_papers_figure_2() -> None:
    """Bits 1 1 1 0 1 0 0 1: the sum peaks at 3 and at 5, so the estimate of y is 4."""
    assert argmax_levels(np.array([[1, 1, 1, 0, 1, 0, 0, 1]])) == [4.0]


@given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=5))
def test_argmax_is_algorithm_2(rows: list[list[bool]]) -> None:
    expected = []
    for row in rows:
        f = [sum(2 * z - 1 for z in row[:n]) for n in range(len(row) + 1)]
        best = [n for n, value in enumerate(f) if value == max(f)]
        expected.append(sum(best) / len(best))
    assert argmax_levels(np.array(rows)).tolist() == pytest.approx(expected)


def test_argmax_of_packed_words_and_of_listed_keys() -> None:
    alp = made()
    assert alp.argmax(pack_bits(patterns(4))) == pytest.approx(5.0 * argmax_levels(patterns(4)))
    estimate, _, _ = decoder(made()).estimate([[1, 1, 1, 1]], [77], [True], estimator="argmax")
    assert estimate.tolist() == [77.0]


def expectation(
    alp: AlpLikelihood, counts: np.ndarray, kink: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """E, Var and E of the estimated variance of the unbiased estimate for each count, over all outcomes."""
    released = alp.released
    words = pack_bits(patterns(alp.levels))
    values = np.arange(released.threshold, released.threshold + 400)
    word = np.concatenate([words, np.repeat(words, len(values))])
    value = np.concatenate([np.zeros(len(words), np.int64), np.tile(values, len(words))])
    listed = np.concatenate([np.zeros(len(words), bool), np.ones(len(words) * len(values), bool)])
    estimate, spread = alp.unbiased(word, value, listed)
    if not kink:
        estimate[listed & (value == released.threshold)] += alp.released.noise.variance / 2.0
    bits = alp.rounding(counts) @ np.exp(alp.log_patterns(words)).T  # (X, patterns)
    loose = bits * alp.released.hidden(counts)[:, None]
    threshold = bits[:, :, None] * alp.released.value(values.astype(float), counts).T[:, None, :]
    chance = np.concatenate([loose, threshold.reshape(len(counts), -1)], axis=1)
    mean = chance @ estimate
    return mean, chance @ estimate**2 - mean**2, chance @ spread


@pytest.mark.parametrize(("threshold", "width"), [(18, 5.0), (20, 5.0), (7, 2.3)])
def test_the_unbiased_estimate_is_unbiased_for_every_count(threshold: int, width: float) -> None:
    alp = made(threshold=threshold, width=width, listed=[])
    counts = np.arange(0.0, 60.0)
    mean, variance, stated = expectation(alp, counts)
    assert mean == pytest.approx(counts, abs=0.002 * 2.0)
    assert np.all(stated >= 0.96 * variance)
    assert np.all(stated <= 1.25 * variance + width**2)


def test_without_its_correction_at_the_bound_it_is_biased() -> None:
    alp = made()
    counts = np.arange(0.0, 60.0)
    assert np.abs(expectation(alp, counts, kink=False)[0] - counts).max() > 0.2
