"""Cells of keys that are not named (δ > 0): exact δ by enumeration of tiny neighbours, broken twins, what is drawn."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from hushgram.contributions.histogram import NOISE_SHARDS, Histogram
from hushgram.key_selection import threshold
from hushgram.key_selection.threshold import TOP_GRID, TopList
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.laplace import LaplaceNoise
from hushgram.noise.noises import noise_of
from hushgram.sensitivity import Sensitivity
from tests.statistics import fits, laplace_pmf, laplace_tail

Floats = NDArray[np.float64]
Outcomes = dict[tuple[Any, ...], Floats]
ENDS = (-40, 90)  # beyond, values of a cell are lumped together


def planned(epsilon: str, delta: str, most: int, name: str) -> tuple[LaplaceNoise, Fraction, int]:
    """Return noise, scale and τ of the names, as a plan has them."""
    noise, part = noise_of(name, Fraction(delta)), Fraction(epsilon) * (1 - threshold.TOP_SHARE)
    (scale,), high = threshold.calibrate(noise, (part,), Fraction(delta), Sensitivity(most, most))
    assert isinstance(noise, LaplaceNoise)
    return noise, scale, high


@cache
def named(noise: LaplaceNoise, scale: Fraction, x: int, high: int) -> dict[int | None, float]:
    """Return {None or v: probability} of a key in the list of texts."""
    if not x:
        return {None: 1.0}
    law, values = noise.law(float(scale)), np.arange(high, high + 60.0)
    out: dict[int | None, float] = dict(
        zip(values.astype(int).tolist(), law.pmf(values - x).tolist(), strict=True)
    )
    out[None] = float(law.below(np.array([float(high - x)]))[0])
    return out


def counted(noise: LaplaceNoise, scale: Fraction, x: int, high: int, twin: str = "") -> dict[int, float]:
    """Return {n: probability} of what a cell counts of a key that is not named."""
    table = threshold.withheld(scale, noise) / 2.0**TOP_GRID
    if twin == "not lowered":
        return {x: 1.0}
    x = min(x, high - 1)
    mean = x - (table[high - x - 1] if x > 0 and high - x <= len(table) else 0.0)
    if twin == "rounded":
        return {round(mean): 1.0}
    return {math.floor(mean): 1 - mean % 1, math.floor(mean) + 1: mean % 1}


@cache
def cell(noise: LaplaceNoise, scale: Fraction, y: int, twin: str = "") -> Floats:
    """Return the probability of each value of a noisy cell; lists and cuts of it are post-processing."""
    first, last = ENDS
    values = np.arange(first, last + 1.0)
    if twin == "bounded noise":
        return noise.law(float(scale)).pmf(values - y)
    out = np.array([laplace_pmf(float(scale), int(v) - y) for v in values])
    out[0], out[-1] = laplace_tail(float(scale), y - first), laplace_tail(float(scale), last - y)
    return out


def outcomes(counts: tuple[int, ...], plan: tuple[LaplaceNoise, Fraction, int], twin: str = "") -> Outcomes:
    """Return, by what the list of texts shows of keys that share a cell, the probability of each value of the cell."""
    noise, scale, high = plan
    parts: dict[tuple[Any, ...], dict[int, float]] = {(): {0: 1.0}}
    for x in counts:
        grown: dict[tuple[Any, ...], dict[int, float]] = {}
        for seen, sums in parts.items():
            for o, p in named(noise, scale, x, high).items():
                adds = counted(noise, scale, x, high, twin) if o is None or twin == "counted" else {0: 1.0}
                grown[(*seen, o)] = {n: p * q for n, q in convolved(sums, adds).items()}
        parts = grown
    return {
        seen: np.sum([p * cell(noise, scale, y, twin) for y, p in sums.items()], axis=0)
        for seen, sums in parts.items()
    }


def convolved(one: dict[int, float], other: dict[int, float]) -> dict[int, float]:
    out: dict[int, float] = {}
    for x, p in one.items():
        for y, q in other.items():
            out[x + y] = out.get(x + y, 0.0) + p * q
    return out


def spent(one: Outcomes, other: Outcomes, epsilon: float) -> float:
    """Return δ at ``epsilon``: the larger of both directions."""
    nothing = np.zeros(ENDS[1] - ENDS[0] + 1)
    pairs = [(one.get(o, nothing), other.get(o, nothing)) for o in one.keys() | other.keys()]
    p, q = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum()) for a, b in ((p, q), (q, p)))


def worst(epsilon: str, plan: tuple[LaplaceNoise, Fraction, int], twin: str = "") -> float:
    """Return the largest δ where one key of a user grows by 1, wherever it is; another key is in the same cell."""
    found = []
    for x in range(2 * plan[2] + 2):
        for other in ((), (plan[2] - 1,)) if x in (0, 1, plan[2] - 1, plan[2]) and plan[2] < 12 else ((),):
            pair = (outcomes((count, *other), plan, twin) for count in (x, x + 1))
            found.append(spent(*pair, float(Fraction(epsilon))))
    return max(found)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [("1/2", "1e-3"), ("1", "1e-3"), ("1", "1e-6"), ("1", "1/20"), ("2", "1e-3"), ("3", "1e-2")],
)
@pytest.mark.parametrize("name", ["truncated_geometric", "laplace"])
def test_names_and_cells_together_spend_delta_once(epsilon: str, delta: str, name: str) -> None:
    plan = planned(epsilon, delta, 1, name)
    noise, scale, high = plan
    one = Sensitivity(1, 1)
    assert threshold.top_holds(TopList(None, high), noise, scale, Fraction(epsilon), one)
    assert not threshold.top_holds(TopList(None, high), noise, 1 / Fraction(epsilon), Fraction(epsilon), one)
    assert threshold.privacy_map(high, noise, scale, one) <= Fraction(delta)
    found = worst(epsilon, plan)
    assert found <= float(Fraction(delta)) * (1 + 1e-6) + 1e-12
    assert found >= float(Fraction(delta)) * (0.99 if name == "truncated_geometric" else 0.1)


@pytest.mark.parametrize("delta", ["1e-3", "1e-2"])
def test_keys_of_one_user_in_one_cell(delta: str) -> None:
    """Two keys, new or shared, or one that grows by 2."""
    plan = planned("1", delta, 2, "laplace")
    high = plan[2]
    for before, after in (
        ((0, 0), (1, 1)), ((0, 3), (1, 4)), ((0, high - 1), (1, high)), ((high - 2, high - 1), (high - 1, high)),
        ((0,), (2,)), ((high - 2,), (high,)), ((high,), (high + 2,)),
    ):  # fmt: skip
        found = spent(outcomes(before, plan), outcomes(after, plan), 1.0)
        assert found <= float(Fraction(delta)) + 1e-9


@pytest.mark.parametrize("name", ["truncated_geometric", "laplace"])
@pytest.mark.parametrize("twin", ["not lowered", "rounded", "counted"])
def test_broken_twins_spend_more(name: str, twin: str) -> None:
    assert worst("1", planned("1", "1e-3", 1, name), twin) > 3e-3


def test_bounded_noise_on_cells_spends_delta_twice() -> None:
    assert worst("1", planned("1", "1e-3", 1, "truncated_geometric"), "bounded noise") > 1.9e-3


def test_what_does_not_fit_is_refused() -> None:
    """Bounded noise is for one key per user, Gaussian noise has no such list, and a count adds no less than nothing."""
    noise, scale, high = planned("1", "1e-3", 1, "truncated_geometric")
    top = TopList(None, high)
    assert not threshold.top_holds(top, noise, 2 * scale, Fraction(1), Sensitivity(2, 1))
    assert not threshold.top_holds(top, noise_of("gaussian"), scale, Fraction(1), Sensitivity(1, 1))
    assert not threshold.top_holds(TopList(12, 40), noise, scale, Fraction(1), Sensitivity(1, 1))
    laplace = noise_of("laplace")
    assert not threshold.top_holds(TopList(None, 3), laplace, 100 * scale, Fraction(1), Sensitivity(1, 1))


@pytest.mark.parametrize("name", ["truncated_geometric", "laplace"])
def test_code_draws_the_distribution(name: str) -> None:
    """Two keys in a cell; false alarms: 10⁻⁶ per comparison."""
    noise, scale, high = planned("1", "1/20", 1, name)
    low, bits, x = 3, 8, (high - 1, 2)
    assert (1 << bits) // NOISE_SHARDS == 1
    texts = pa.array([b"a", b"b"], pa.large_binary())
    part = Histogram(np.array([7 << 56 | 1, 7 << 56 | 2], np.uint64), np.array(x, np.int64), texts)
    drawn = []
    for i in range(4_000):
        heavy = threshold.release_shard(
            7, part, threshold=low, noise=noise, scale=scale, domain_bits=bits, top=TopList(None, high),
            release_key=ReleaseKey(i.to_bytes(32, "little")),
        )  # fmt: skip
        assert heavy.texts is not None
        assert heavy.cells is not None
        assert heavy.cells.fingerprints.tolist() in ([], [7])
        assert heavy.cells.values.max(initial=0) < high <= heavy.values.min(initial=high)
        names = [int(text in heavy.texts.to_pylist()) for text in (b"a", b"b")]
        drawn.append(100 * (2 * names[0] + names[1]) + int(heavy.cells.values.max(initial=0)))

    def expected(counts: tuple[int, ...]) -> dict[int, float]:
        out: dict[int, float] = {}
        for (first, second), chances in outcomes(counts, (noise, scale, high)).items():
            for v, p in enumerate(chances.tolist(), ENDS[0]):
                place = 200 * (first is not None) + 100 * (second is not None) + min(v, high - 1) * (v >= low)
                out[place] = out.get(place, 0.0) + p
        return out

    assert fits(drawn, expected(x))
    assert not fits(drawn, expected((x[0] + 1, x[1])))


@pytest.mark.fresh_noise(rate=1e-5)
def test_an_empty_shard_has_false_cells_and_no_names() -> None:
    nothing, total = Histogram.empty(texts=True), 0
    for i in range(200):
        heavy = threshold.release_shard(
            7, nothing, threshold=3, noise=noise_of("laplace"), scale=Fraction(1), domain_bits=12,
            top=TopList(None, 9), release_key=ReleaseKey(i.to_bytes(32, "little")),
        )  # fmt: skip
        assert not len(heavy)
        assert heavy.cells is not None
        total += len(heavy.cells)
    mean = 200 * 16 * laplace_tail(1.0, 3)
    assert abs(total - mean) < 5.5 * math.sqrt(mean)  # false alarms: 10⁻⁷
