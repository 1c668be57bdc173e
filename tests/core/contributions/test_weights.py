"""Values on a grid: exact for every type of number, unbiased, and the same however records are cut into parts."""

import decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgram.contributions import sums
from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.contributions.histogram import Histogram
from hushgram.contributions.sums import (
    GRAINS,
    MAX_MULTIPLE,
    MAX_SUM,
    Grid,
    checked_sums,
    checked_values,
    round_grains,
    wrong_values,
)
from hushgram.errors import InputError, ParameterError
from hushgram.noise.entropy import ReleaseKey

KEY = ReleaseKey(bytes(range(32)))
UNITS = [Fraction(1), Fraction(1000), Fraction(1, 100), Fraction(7, 3), Fraction(10**9), Fraction(1, 1000003)]


def never(rows):
    """Draws with which nothing is rounded up."""
    return lambda: np.full(rows, (1 << 64) - 1, np.uint64)


def always(rows):
    """Draws with which whatever is left over is rounded up."""
    return lambda: np.zeros(rows, np.uint64)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("most", [1, 16, 4096, MAX_MULTIPLE])
@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=20))
def test_integers_and_floats_become_the_same_grains(unit, most, values):
    """By fractions: a value, at most max_value, in grains, down or up by less than one."""
    grid, n = Grid(unit, most), len(values)
    low, high = (grid.grains(pa.array(values, pa.int64()), draw(n)) for draw in (never, always))
    exact = [min(Fraction(value), most * unit) / unit * GRAINS for value in values]
    assert [int(x) for x in low] == [x.numerator // x.denominator for x in exact]
    assert [int(x) for x in high] == [-(-x.numerator // x.denominator) for x in exact]
    for draw, whole in ((never, low), (always, high)):
        assert (grid.grains(pa.array(values, pa.float64()), draw(n)) == whole).all()
    seeded = np.random.default_rng(5).integers(0, 1 << 63, n).astype(np.uint64)
    both = [grid.grains(pa.array(values, kind), lambda: seeded) for kind in (pa.int64(), pa.float64())]
    assert (both[0] == both[1]).all()
    beside = pa.array([*values, 0.5], pa.float64())  # a fraction, for which all are taken to smaller pieces
    more = np.append(seeded, np.uint64(0))
    assert (grid.grains(beside, lambda: more)[:n] == both[0]).all()


def test_fractions_of_floats_and_decimals():
    grid = Grid(Fraction(1, 100), 1000)
    prices = ["0.00", "0.01", "3.14", "9.999", "10.00", "123456.78"]
    floats = grid.grains(pa.array([float(p) for p in prices]), never(6))
    found = grid.grains(pa.array([decimal.Decimal(p) for p in prices], pa.decimal128(12, 3)), never(6))
    assert found.tolist() == [0, GRAINS, 314 * GRAINS, 4095590, 1000 * GRAINS, 1000 * GRAINS]
    assert (np.abs(floats - found) <= 1).all()  # 0.01 as a float is not 1/100
    wide = grid.grains(pa.array([decimal.Decimal("3.14")], pa.decimal128(38, 20)), never(1))
    assert abs(int(wide[0]) - 314 * GRAINS) <= 1
    sliced = pa.array([decimal.Decimal(p) for p in prices], pa.decimal128(12, 3)).slice(2, 2)
    assert grid.grains(sliced, never(2)).tolist() == found.tolist()[2:4]


def test_a_grain_is_rounded_up_as_often_as_is_left_over():
    """All draws of the 20 bits: the share of those that round up is what is left over, to 2^-20."""
    grid = Grid(Fraction(1_000_003), 16)
    every = np.arange(1 << 20, dtype=np.uint64) << np.uint64(44)
    value = 123_457
    found = grid.grains(pa.array(np.full(1 << 20, value)), lambda: every)
    exact = Fraction(value) / grid.granularity * GRAINS
    assert set(found.tolist()) == {int(exact), int(exact) + 1}
    assert abs(Fraction(int((found - int(exact)).sum()), 1 << 20) - (exact - int(exact))) <= Fraction(
        1, 1 << 20
    )


def test_units_are_unbiased_over_all_draws(monkeypatch):
    monkeypatch.setattr(sums, "mix", lambda values: values)
    every = (np.arange(GRAINS, dtype=np.uint64) << np.uint64(52)) ^ sums._SALT
    for grains in (0, 1, 5, GRAINS - 1, GRAINS, 3 * GRAINS + 1234):
        assert int(round_grains(np.full(GRAINS, grains), every).sum()) == grains


def test_units_of_many_keys_add_up():
    """The real hash: 10^5 sums of 0.3 units; the false-alarm rate at 5 standard deviations is 6 in 10^7."""
    n, grains = 100_000, round(0.3 * GRAINS)
    users = Contributions.of(np.arange(n), np.arange(n), KEY, texts=False)
    rounded = round_grains(np.full(n, grains), users.hashes())
    share = grains / GRAINS
    assert abs(rounded.mean() - share) < 5 * (share * (1 - share) / n) ** 0.5
    # and not by the order in which keys are kept
    order = np.argsort(users.hashes())
    assert abs(rounded[order[: n // 2]].mean() - share) < 5 * (share * (1 - share) / (n / 2)) ** 0.5


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5), st.sampled_from([0.0, 0.3, 1.0, 2.5, 40.0])), max_size=40
)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(1, 5), st.booleans())
def test_parts_do_not_matter(rows, pieces, texts):
    """Cut before they are merged, by any pieces: the same bounded histogram."""

    def of(part):
        users, keys, values = zip(*part, strict=True) if part else ((), (), ())
        column = pa.array(values, pa.float64())
        grid = Grid(Fraction(1, 2), 8)
        return Contributions.of(
            pa.array(users, pa.int64()),
            pa.array([f"k{k}" for k in keys], pa.string()),
            KEY,
            texts=texts,
            values=((column, grid),),
        )

    whole = of(rows).bounded(Bounds(10, 8, weighted=True))
    parts = [of(rows[i::pieces]).prune(Bounds(10, 8, weighted=True)) for i in range(pieces)]
    merged = (
        Contributions.concat(parts)
        .prune_if_many(Bounds(10, 8, weighted=True))
        .bounded(Bounds(10, 8, weighted=True))
    )
    assert merged.fingerprints.tolist() == whole.fingerprints.tolist()
    assert merged.counts.tolist() == whole.counts.tolist()


def test_nothing_overflows():
    """A user with as many of the largest values as memory holds has the largest sum, not a negative one."""
    n = 1 << 21
    grid = Grid(Fraction(1), MAX_MULTIPLE)
    values = pa.array(np.full(n, float(sums.MAX_VALUE) / 2))
    rows = Contributions.of(
        np.zeros(n, np.int64), np.zeros(n, np.int64), KEY, texts=False, values=((values, grid),)
    )
    for _ in range(12):  # 2^33 records
        rows = Contributions.concat([rows.prune(Bounds(4, 4, weighted=True))] * 2)
    assert rows.bounded(Bounds(MAX_MULTIPLE, MAX_MULTIPLE, weighted=True)).counts.tolist() == [MAX_MULTIPLE]


@pytest.mark.parametrize(
    ("column", "reasons"),
    [
        (pa.array([1.0, float("nan"), 2.0]), {"v is not a number": [True, False, True]}),
        (pa.array([float("inf"), 1.0]), {"v is infinite": [False, True], "v is too large": [False, True]}),
        (pa.array([-0.5, -0.0, None]), {"v is negative": [False, True, True]}),
        (pa.array([-1, 5], pa.int8()), {"v is negative": [False, True]}),
        (pa.array([1 << 63, 5], pa.uint64()), {"v is too large": [False, True]}),
        (pa.array([decimal.Decimal("-1.5"), decimal.Decimal(2)]), {"v is negative": [False, True]}),
        (pa.array([0, 5], pa.uint32()), {}),
        (pa.array([], pa.float64()), {}),
    ],
)
def test_values_that_cannot_be_added_up(column, reasons):
    assert {reason: rows.tolist() for reason, rows in wrong_values(column, "v")} == reasons


def test_columns_of_a_caller():
    assert checked_values([1, 2], 2).type == pa.int64()
    missing = Grid(Fraction(1), 4).grains(checked_values([1, None], 2), never(2))
    assert missing.tolist() == [GRAINS, 0]  # adds nothing
    assert checked_values([], 0).type == checked_values([None], 1).type == pa.int64()
    for values, rows, words in (
        (["a"], 1, "whole numbers"),
        ([1.5], 2, "as many"),
        ([1.5, -2.0], 2, "negative, at row 2"),
        ([True], 1, "got bool"),
    ):
        with pytest.raises(InputError, match=words):
            checked_values(values, rows)
    with pytest.raises(InputError, match="raise granularity"):
        checked_sums([float(MAX_SUM)], 1, Fraction(1))
    with pytest.raises(ParameterError, match="rounder"):
        Grid(Fraction(1 << 30), MAX_SUM).grains(pa.array([1]), never(1))


def test_sums_without_users_are_rounded_by_key():
    sums = Histogram.of_counts([f"k{i}" for i in range(2000)], np.full(2000, GRAINS // 4), texts=True)
    rounded = sums.rounded(KEY)
    assert set(rounded.counts.tolist()) == {1}
    assert abs(len(rounded) - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5
    assert len(rounded.texts) == len(rounded)
    again = Histogram.merge([sums.part(0, 700), sums.part(700, 2000)]).rounded(KEY)
    assert again.fingerprints.tolist() == rounded.fingerprints.tolist()
