"""The channel against sums over all outcomes and against the definitions, written out."""

from __future__ import annotations

import numpy as np
import pytest

from hushgram.decoding.channel import Channel, pack_bits
from tests.statistics import laplace_tail

from .worlds import made, patterns

COUNTS = np.arange(0.0, 60.0)


def brute(channel: Channel, bits: np.ndarray, y: int) -> float:
    """P(pattern | y), one column at a time."""
    product = 1.0
    for level, bit in enumerate(bits):
        one = channel.set_below if level < y else channel.set_above[level]
        product *= one if bit else 1.0 - one
    return product


def test_pattern_likelihoods_are_products_over_columns() -> None:
    channel = Channel(made())
    table = np.exp(channel.log_patterns(pack_bits(patterns(4))))
    for row, bits in zip(table, patterns(4), strict=True):
        assert row == pytest.approx([brute(channel, bits, y) for y in range(5)])
    assert table.sum(axis=0) == pytest.approx(np.ones(5))


def test_a_bit_above_y_is_set_as_often_as_the_column_shows() -> None:
    channel = Channel(made())
    assert channel.set_above == pytest.approx([0.5, 3 / 7, 0.34, 0.25])


@pytest.mark.parametrize("ones", [[0, 0, 0, 0], [1000, 700, 500, 400]])
def test_impossible_loads_are_brought_back_between_p_and_1_minus_p(ones: list[int]) -> None:
    channel = Channel(made(ones=ones))
    assert np.all(channel.set_above >= 0.2)
    assert np.all(channel.set_above < 0.8)


def test_rounding_is_unbiased_and_stops_at_the_bound() -> None:
    channel = Channel(made())
    table = channel.rounding(COUNTS)
    assert table.sum(axis=1) == pytest.approx(np.ones(len(COUNTS)))
    assert table @ np.arange(5) == pytest.approx(np.minimum(COUNTS, 18) / 5.0)
    reach = np.cumsum(table[:, ::-1], axis=1)[:, ::-1][:, 1:]
    assert channel.reach(COUNTS) == pytest.approx(reach)


def test_tail_is_the_sum_of_the_noise() -> None:
    channel = Channel(made())
    at = np.arange(-20, 21)
    assert channel.tail(at.astype(float)) == pytest.approx([laplace_tail(2.0, int(t)) for t in at], abs=1e-12)


@pytest.mark.parametrize("cells", [2.0**20, None])
def test_values_and_not_listed_add_up_to_one(cells: float | None) -> None:
    channel = Channel(made(cells=cells))
    values = np.arange(18.0, 200.0)
    assert channel.value(values, COUNTS).sum(axis=0) + channel.hidden(COUNTS) == pytest.approx(np.ones(60))
    assert (channel.hidden(np.zeros(1))[0] == 1.0) == (cells is None)  # only cells with noise list a zero


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_radius_is_the_smallest_that_holds_the_level(level: float) -> None:
    channel = Channel(made())
    radius = channel.radius(level)
    assert 1.0 - 2.0 * laplace_tail(2.0, radius + 1) >= level
    assert 1.0 - 2.0 * laplace_tail(2.0, radius) < level


def test_variance_is_that_of_the_noise() -> None:
    z = np.arange(-200, 201)
    mass = np.exp(-np.abs(z) / 2.0)
    assert Channel(made()).variance == pytest.approx((mass / mass.sum()) @ z**2)
