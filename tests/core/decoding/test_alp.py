"""ALP's likelihood and the list against sums over all outcomes and against the definitions, written out."""

from __future__ import annotations

import numpy as np
import pytest

from hushgram.decoding.alp import AlpLikelihood, pack_bits

from .worlds import made, patterns

COUNTS = np.arange(0.0, 60.0)


def brute(alp: AlpLikelihood, bits: np.ndarray, y: int) -> float:
    """P(pattern | y), one column at a time."""
    product = 1.0
    for level, bit in enumerate(bits):
        one = alp.set_below if level < y else alp.set_above[level]
        product *= one if bit else 1.0 - one
    return product


def test_pattern_likelihoods_are_products_over_columns() -> None:
    alp = made()
    table = np.exp(alp.log_patterns(pack_bits(patterns(4))))
    for row, bits in zip(table, patterns(4), strict=True):
        assert row == pytest.approx([brute(alp, bits, y) for y in range(5)])
    assert table.sum(axis=0) == pytest.approx(np.ones(5))


def test_a_bit_above_y_is_set_as_often_as_the_column_shows() -> None:
    alp = made()
    assert alp.set_above == pytest.approx([0.5, 3 / 7, 0.34, 0.25])


@pytest.mark.parametrize("ones", [[0, 0, 0, 0], [1000, 700, 500, 400]])
def test_impossible_loads_are_brought_back_between_p_and_1_minus_p(ones: list[int]) -> None:
    alp = made(ones=ones)
    assert np.all(alp.set_above >= 0.2)
    assert np.all(alp.set_above < 0.8)


def test_rounding_is_unbiased_and_stops_at_the_bound() -> None:
    alp = made()
    table = alp.rounding(COUNTS)
    assert table.sum(axis=1) == pytest.approx(np.ones(len(COUNTS)))
    assert table @ np.arange(5) == pytest.approx(np.minimum(COUNTS, 18) / 5.0)
    reach = np.cumsum(table[:, ::-1], axis=1)[:, ::-1][:, 1:]
    assert alp.reach(COUNTS) == pytest.approx(reach)


@pytest.mark.parametrize("cells", [2.0**20, None])
def test_values_and_not_listed_add_up_to_one(cells: float | None) -> None:
    alp = made(domain_size=cells)
    values = np.arange(18.0, 200.0)
    assert alp.released.value(values, COUNTS).sum(axis=0) + alp.released.hidden(COUNTS) == pytest.approx(
        np.ones(60)
    )
    assert (alp.released.hidden(np.zeros(1))[0] == 1.0) == (
        cells is None
    )  # only cells with noise list a zero
