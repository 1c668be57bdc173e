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


def sub_cell(x: int, high: int, scale: float) -> dict[int | None, float]:
    """Return {None or v: probability} of a sub-cell in the top list."""
    out: dict[int | None, float] = {v: laplace_pmf(scale, v - x) for v in range(high, high + REACH)}
    out[None] = 1 - laplace_tail(scale, high - x)
    return out


def cell(y: int, low: int, high: int, scale: float) -> dict[int | None, float]:
    """Return the same of a cell in the other list, whose values are cut at ``high`` − 1."""
    out: dict[int | None, float] = {v: laplace_pmf(scale, v - y) for v in range(low, high - 1)}
    out[high - 1] = laplace_tail(scale, high - 1 - y)
    out[None] = 1 - laplace_tail(scale, low - y)
    return out


def outcomes(
    counts: tuple[int, ...], low: int, top: TopList, scale: float, *, leave_out: bool = True
) -> dict[Any, float]:
    """Return every outcome of a cell with these sub-cells: what each shows in the top list, and the cell."""
    parts: dict[tuple[Any, ...], float] = {(): 1.0}
    for x in counts:
        each = sub_cell(x, top.threshold, scale)
        parts = {(*seen, o): p * q for seen, p in parts.items() for o, q in each.items()}
    out = {}
    for seen, p in parts.items():
        rest = sum(min(x, top.clip) for x, o in zip(counts, seen, strict=True) if o is None or not leave_out)
        for o, q in cell(rest, low, top.threshold, scale).items():
            out[(*seen, o)] = p * q
    return out


def worst_loss(most: int, low: int, top: TopList, scale: float, **twin: bool) -> float:
    """Return the largest log-ratio when a sub-cell of two grows by ``most``, wherever they are."""
    around = [0, 1, low, top.clip - 1, top.clip, top.threshold - 1, top.threshold, top.threshold + 5]
    worst = 0.0
    for x in around:
        for other in (0, top.threshold):
            p, q = (outcomes((count, other), low, top, scale, **twin) for count in (x, x + most))
            worst = max(worst, *(abs(math.log(p[o] / q[o])) for o in p))
    return worst


@pytest.mark.parametrize(("epsilon", "most"), [("1/2", 1), ("1", 2), ("2", 1)])
def test_both_lists_together_lose_at_most_epsilon(epsilon: str, most: int) -> None:
    share, bounds = Fraction(epsilon), Sensitivity(most, most)
    scale = most / share / (1 - threshold.TOP_SHARE)
    high = int(12 * scale)
    clip = threshold.top_clip(high, NOISE, scale, share, bounds)
    assert clip is not None
    assert threshold.top_holds(clip, high, NOISE, scale, share, bounds)
    assert not threshold.top_holds(clip + 1, high, NOISE, scale, share, bounds)
    loss = worst_loss(most, 3, TopList(12, high, clip), float(scale))
    assert loss <= float(share) + 1e-9
    assert loss >= float(share) * 0.99


def test_broken_twins_lose_more() -> None:
    scale, high = Fraction(100, 99), 12
    clip = threshold.top_clip(high, NOISE, scale, Fraction(1), Sensitivity(1, 1))
    assert clip is not None
    right = TopList(12, high, clip)
    assert worst_loss(1, 3, right, float(scale)) <= 1 + 1e-9
    assert worst_loss(1, 3, TopList(12, high, high), float(scale)) > 1.3  # no cut
    assert worst_loss(1, 3, right, float(scale), leave_out=False) > 1.3  # listed keys are counted twice
    assert threshold.top_clip(3, NOISE, scale, Fraction(1), Sensitivity(1, 1)) is None
    no_room = threshold.top_clip(high, NOISE, Fraction(1), Fraction(1), Sensitivity(1, 1))
    assert no_room is None  # noise for one list alone leaves nothing for a second


def test_code_draws_the_distribution() -> None:
    """A cell with two sub-cells of the data; false alarms: 10⁻⁶ per comparison."""
    scale, low, bits, top = 2.0, 4, 8, TopList(10, 9, 6)
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
    for listed, y in ((True, 2), (False, min(8, top.clip) + 2)):
        for o, p in cell(y, low, top.threshold, scale).items():
            chance = p * (apart if listed else 1 - apart) * (1 - seldom)
            expected[100 * listed + (o or 0)] = chance
    assert fits(whole, expected)
