"""Two lists for the price of one: exact enumeration on tiny neighbours, broken twins, and what the code draws."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hushgram.contributions.histogram import NOISE_SHARDS, Histogram
from hushgram.key_selection import threshold
from hushgram.key_selection.threshold import TopList
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.laplace import NOISE
from hushgram.sensitivity import Sensitivity
from tests.statistics import fits, laplace_pmf, laplace_tail

REACH = 60


def sub_cell(x: int, high: int, scale: float, reach: int = REACH) -> dict[int | None, float]:
    """Return {None or v: probability} of a sub-cell in the top list."""
    out: dict[int | None, float] = {v: laplace_pmf(scale, v - x) for v in range(high, high + reach)}
    out[None] = 1 - laplace_tail(scale, high - x)
    return out


def cell(y: int, low: int, high: int, scale: float) -> dict[int | None, float]:
    """Return the same of a cell in the other list, whose values are cut at ``high`` − 1."""
    out: dict[int | None, float] = {v: laplace_pmf(scale, v - y) for v in range(low, high - 1)}
    out[high - 1] = laplace_tail(scale, high - 1 - y)
    out[None] = 1 - laplace_tail(scale, low - y)
    return out


def counted(x: int, top: TopList, scale: float, *, cut: bool = True) -> dict[int, float]:
    """Return {n: probability} of what the other list counts of a sub-cell that the top list does not show."""
    table = threshold.withheld(Fraction(scale).limit_denominator(10**6)) / 2.0**threshold.TOP_GRID
    if not cut:
        return {x: 1.0}
    x = min(x, top.threshold - 1)
    below = top.threshold - x
    mean = x - (table[below - 1] if below <= len(table) else 0.0)
    return {math.floor(mean): 1 - mean % 1, math.floor(mean) + 1: mean % 1}


def outcomes(
    counts: tuple[int, ...],
    low: int,
    top: TopList,
    scale: float,
    *,
    leave_out: bool = True,
    cut: bool = True,
    dither: bool = True,
) -> dict[Any, float]:
    """Return every outcome of a cell with these sub-cells: what each shows in the top list, and the cell."""
    parts: dict[tuple[Any, ...], float] = {(): 1.0}
    for x in counts:
        each = sub_cell(x, top.threshold, scale, reach=6)  # beyond, ratios stay as they are
        parts = {(*seen, o): p * q for seen, p in parts.items() for o, q in each.items()}
    out: dict[Any, float] = {}
    for seen, p in parts.items():
        rest = {0: 1.0}
        for x, o in zip(counts, seen, strict=True):
            if o is None or not leave_out:
                each_n = counted(x, top, scale, cut=cut)
                if not dither:
                    each_n = {max(each_n, key=lambda n: each_n[n]): 1.0}
                rest = convolved(rest, each_n)
        for y, chance in rest.items():
            for o, q in cell(y, low, top.threshold, scale).items():
                out[(*seen, o)] = out.get((*seen, o), 0.0) + p * chance * q
    return out


def convolved(one: dict[int, float], other: dict[int, float]) -> dict[int, float]:
    out: dict[int, float] = {}
    for x, p in one.items():
        for y, q in other.items():
            out[x + y] = out.get(x + y, 0.0) + p * q
    return out


def worst_loss(most: int, low: int, top: TopList, scale: float, **twin: bool) -> float:
    """Return the largest log-ratio when a sub-cell of two grows by ``most``, wherever they are."""
    worst = 0.0
    for x in range(top.threshold + 5):
        for other in (0, top.threshold) if x % 4 == 0 else (0,):
            p, q = (outcomes((count, other), low, top, scale, **twin) for count in (x, x + most))
            worst = max(worst, *(abs(math.log(p[o] / q[o])) for o in p))
    return worst


@pytest.mark.parametrize(("epsilon", "most"), [("1/2", 1), ("1", 2), ("1", 1), ("2", 1), ("4", 1)])
def test_both_lists_together_lose_at_most_epsilon(epsilon: str, most: int) -> None:
    share, bounds = Fraction(epsilon), Sensitivity(most, most)
    scale = most / share / (1 - threshold.TOP_SHARE)
    high = len(threshold.withheld(scale)) + 2
    assert threshold.top_holds(TopList(12, high), NOISE, scale, share, bounds)
    assert not threshold.top_holds(TopList(12, high - 2), NOISE, scale, share, bounds)
    assert not threshold.top_holds(
        TopList(12, high), NOISE, most / share, share, bounds
    )  # that is noise for one list
    loss = worst_loss(most, 3, TopList(12, high), float(scale))
    assert loss <= float(share) + 1e-9
    assert loss >= float(share) * 0.999


@pytest.mark.parametrize("scale", ["1/5", "1/2", "1", "3", "10", "100", "1000"])
def test_what_is_withheld_keeps_to_its_definition(scale: str) -> None:
    """D(x − o) = q^x/F(x) as defined, to the grid; and the loss of D and U at every step."""
    b = float(Fraction(scale))
    table, q = threshold.withheld(Fraction(scale)) / 2.0**threshold.TOP_GRID, math.exp(-1 / b)
    assert np.all(np.diff(table) <= 0)
    assert table[0] <= b * math.log(2)
    t = np.arange(len(table), 0, -1)
    t, table = np.append(t[0] + 1, t), np.append(table, 0.0)
    mean = -t - table[::-1]
    floor, over = np.floor(mean), mean - np.floor(mean)
    log_d = -floor / b + np.log(1 - over + over * q)
    log_u = floor / b + np.log(1 - over + over / q)
    log_f = np.log1p(-np.exp(-t / b) / (1 + q))
    grid = math.expm1(1 / b) * 2.0**-threshold.TOP_GRID
    assert np.max(np.abs(log_d - (t / b - log_f))) <= 0.51 * grid
    assert np.max(np.diff(-log_f - log_d)) <= 1 / b + 1.01 * grid
    assert np.max(np.diff(log_f + log_u)) <= 1 / b + 1.01 * grid


def test_broken_twins_lose_more() -> None:
    scale = Fraction(10_000, 9_999)
    right = TopList(12, len(threshold.withheld(scale)) + 1)
    assert worst_loss(1, 3, right, float(scale)) <= 1 + 1e-9
    assert worst_loss(1, 3, right, float(scale), cut=False) > 1.3  # nothing is withheld
    assert worst_loss(1, 3, right, float(scale), leave_out=False) > 1.3  # listed keys are counted twice
    assert worst_loss(1, 3, right, float(scale), dither=False) > 1.1  # rounded to the nearest


def test_code_draws_the_distribution() -> None:
    """A cell with two sub-cells of the data; false alarms: 10⁻⁶ per comparison."""
    scale, low, bits, top = 2.0, 4, 8, TopList(10, 9)
    assert (1 << bits) // NOISE_SHARDS == 1
    part = Histogram(np.array([7 * 4 + 1, 7 * 4 + 2], np.uint64), np.array([8, 2], np.int64))
    first, second, whole = [], [], []
    for i in range(4_000):
        heavy = threshold.release_shard(
            7, part, threshold=low, noise=NOISE, scale=Fraction(2), domain_bits=bits, top=top,
            release_key=ReleaseKey(i.to_bytes(32, "little")),
        )  # fmt: skip
        found = dict(zip(heavy.fingerprints.tolist(), heavy.values.tolist(), strict=True))
        assert all((value >= top.threshold) == bool(code & 1) for code, value in found.items())
        first.append(found.get(29 << 1 | 1, 0))
        second.append(found.get(30 << 1 | 1, 0))
        whole.append((first[-1] > 0) * 100 + found.get(7 << 3, 0) if second[-1] == 0 else -1)
    for seen, x in ((first, 8), (second, 2)):
        assert fits(seen, {o or 0: p for o, p in sub_cell(x, top.threshold, scale).items()})
        assert not fits(seen, {o or 0: p for o, p in sub_cell(x + 2, top.threshold, scale).items()})
    apart = laplace_tail(scale, top.threshold - 8)
    seldom = laplace_tail(scale, top.threshold - 2)
    expected = {-1: seldom}
    other = counted(2, top, scale)
    for listed, sums in ((True, other), (False, convolved(other, counted(8, top, scale)))):
        for y, share in sums.items():
            for o, p in cell(y, low, top.threshold, scale).items():
                chance = share * p * (apart if listed else 1 - apart) * (1 - seldom)
                expected[100 * listed + (o or 0)] = expected.get(100 * listed + (o or 0), 0.0) + chance
    assert fits(whole, expected)
