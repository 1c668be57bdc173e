"""Intervals of sums: coverage against the normal distribution, for every true sum."""

from __future__ import annotations

import numpy as np
import pytest

from hushgram.decoding.totals import normal_range, positive_range


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("truth", [0.0, 0.3, 1.0, 2.5, 6.0, 9.0])
def test_positive_sums_are_held_at_their_level(level: float, truth: float) -> None:
    estimates = np.linspace(-6.0, 6.0, 4_001) + truth
    weight = np.exp(-0.5 * (estimates - truth) ** 2)
    ranges = np.array([positive_range(float(at) * 40.0, 40.0, level) for at in estimates])
    assert np.all((ranges[:, 0] >= 0.0) & (ranges[:, 1] > ranges[:, 0]))
    held = (ranges[:, 0] <= truth * 40.0) & (truth * 40.0 <= ranges[:, 1])
    assert weight @ held / weight.sum() == pytest.approx(level, abs=0.006)


def test_plain_ranges_cut_at_0_hold_too_much() -> None:
    """What the construction is for: at a sum of 0 a normal interval errs on one side only."""
    estimates = np.linspace(-6.0, 6.0, 4_001)
    weight = np.exp(-0.5 * estimates**2)
    held = np.array([normal_range(float(at), 1.0, 0.0, 0.95)[0] <= 0.0 for at in estimates])
    assert weight @ held / weight.sum() > 0.97


def test_a_sum_far_below_0_has_a_range_at_0() -> None:
    low, high = positive_range(-1e6, 1.0, 0.95)
    assert low == 0.0
    assert 0.0 < high < 0.1


def test_any_level_has_a_range() -> None:
    """A level of 10^−9 once had none."""
    for level in (1e-300, 1e-9, 0.001, 1 - 1e-12):
        for at in (-3.0, 0.0, 0.003, 2.505, 6.999):
            low, high = positive_range(at, 1.0, level)
            assert 0.0 <= low <= high
