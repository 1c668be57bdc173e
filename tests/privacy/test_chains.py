"""Lists and an encoding for the price of one: exact enumeration of tiny neighbours, broken twins, what the code draws.

Noise has a rational q = e^(−1/b) where it can, so that all probabilities are fractions, and no bound has a tolerance.
Truncated geometric noise and plans as they are made are enumerated in floats, with the tolerance that is stated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pyarrow as pa
import pytest

import hushgram as hg
from hushgram.contributions.histogram import NOISE_SHARDS, Histogram
from hushgram.encodings import LayoutSpec
from hushgram.encodings.alp import ENCODING, AlpLayout, round_shard
from hushgram.key_selection import threshold
from hushgram.key_selection.threshold import REMAINDER_GRID, Heavy, Remainder, TopList, remainder
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.laplace import NOISE as LAPLACE
from hushgram.noise.laplace import LaplaceNoise
from hushgram.noise.noises import noise_of
from hushgram.noise.truncated_geometric import TruncatedGeometricNoise, chances_to_list
from hushgram.sensitivity import Sensitivity
from hushgram.sparse_histogram.plan import Plan, make_plan
from hushgram.sparse_histogram.sizing import Sizes
from tests.statistics import fits

Number = Any  # a fraction, or a float
Cells = tuple[tuple[int, ...], ...]  # exact counts: the sub-cells, or keys, of each cell of one bit
Shown = tuple[Any, ...]
UNIT = 1 << REMAINDER_GRID


# --- the mechanisms, from first principles ----------------------------------------------------------------------


@dataclass(frozen=True)
class RationalNoise(LaplaceNoise):
    """Discrete Laplace noise of which q is a fraction."""

    q: Fraction = Fraction(1, 2)

    def ratio(self, scale: Fraction, places: int) -> int:
        return (self.q.numerator << places) // self.q.denominator


class Laplace:
    """Probabilities of discrete Laplace noise."""

    def __init__(self, q: Number) -> None:
        self.q = q

    def pmf(self, z: int) -> Number:
        return (1 - self.q) / (1 + self.q) * self.q ** abs(z)

    def at_least(self, t: int) -> Number:
        return self.q**t / (1 + self.q) if t >= 1 else 1 - self.q ** (1 - t) / (1 + self.q)

    def below(self, t: int) -> Number:
        return self.at_least(1 - t)


class Truncated:
    """Probabilities of truncated geometric noise, as floats: P[Z ≥ τ − n] = π(n)."""

    def __init__(self, noise: TruncatedGeometricNoise, scale: Fraction) -> None:
        chances = [Fraction(low, 1 << 384) for low, _ in chances_to_list(1 / scale, noise.delta)]
        self.middle = next(n for n, chance in enumerate(chances) if 2 * chance >= 1)
        self.listed = [float(chance) for chance in chances]
        self.hidden = [float(1 - chance) for chance in chances]
        self.steps = [0.0, *(float(b - a) for a, b in itertools.pairwise(chances)), 0.0]

    def pmf(self, z: int) -> float:
        return self.steps[min(max(self.middle - z, 0), len(self.steps) - 1)]

    def at_least(self, t: int) -> float:
        return self.listed[min(max(self.middle - t, 0), len(self.listed) - 1)]

    def below(self, t: int) -> float:
        return self.hidden[min(max(self.middle - t, 0), len(self.hidden) - 1)]


Law = Laplace | Truncated


@dataclass(frozen=True, eq=False)
class Stage:
    """A list: its threshold, its noise, and what it passes on; values beyond ``reach`` are lumped together."""

    threshold: int
    law: Law
    rest: Remainder
    texts: bool = False
    reach: int = 6
    unit: Number = Fraction(UNIT)  # a float where probabilities are floats

    def shows(self, x: int) -> dict[Any, Number]:
        """Return {None or v: probability}."""
        if self.texts and not x:
            return {None: 1}
        last = self.threshold + self.reach
        out = {v: self.law.pmf(v - x) for v in range(self.threshold, last)}
        return {**out, last: self.law.at_least(last - x), None: self.law.below(self.threshold - x)}

    def passes(self, x: int, twin: str = "") -> dict[int, Number]:
        """Return {n: probability} of what passes on."""
        if twin == "x itself":
            return {x: 1}
        if twin == "cut":
            return {min(x, self.threshold): 1}
        n, over = divmod(int(self.rest(np.array([x]))[0]), UNIT)
        if twin == "nearest":
            return {n + (2 * over >= UNIT): 1}
        return {n: (UNIT - over) / self.unit, **({n + 1: over / self.unit} if over else {})}


@dataclass(frozen=True)
class Bit:
    """A bit of the column of ALP: one level of width w, randomized response."""

    width: Number
    alpha: Number
    times: int = 1  # encodings of the same counts

    def outcomes(self, sums: list[dict[int, Number]], *, drawn: bool = True) -> dict[Any, Number]:
        """Return {bits: mass}, where each cell passes on n with this mass."""
        unset, total = 1, 1
        for ns in sums:
            unset *= sum(mass * max(1 - n / self.width, 0) ** self.times for n, mass in ns.items())
            total *= sum(ns.values())
        if not drawn:
            return {1: total - unset, 0: unset}
        high, low = (self.alpha + 1) / (self.alpha + 2), 1 / (self.alpha + 2)
        if self.times == 1:
            return {1: (total - unset) * high + unset * low, 0: (total - unset) * low + unset * high}
        assert len(sums) == 1
        out: dict[Any, Number] = {}
        for n, mass in sums[0].items():
            one = min(n / self.width, 1) * (high - low) + low
            for bits in itertools.product((0, 1), repeat=self.times):
                chance = math.prod(one if bit else 1 - one for bit in bits)
                out[bits] = out.get(bits, 0) + mass * chance
        return out


@dataclass(frozen=True)
class Bucket:
    """A sum with Laplace noise: it costs exactly 1/b per unit, wherever it is."""

    law: Laplace
    reach: int

    def outcomes(self, sums: list[dict[int, Number]], *, drawn: bool = True) -> dict[Any, Number]:
        total: dict[int, Number] = {0: 1}
        for ns in sums:
            total = convolved(total, ns)
        last = max(total) + self.reach
        if not drawn:  # an empty bucket has no noise
            return {0: total.pop(0, 0), 1: sum(total.values())}
        first, last = -2, self.reach
        out = {
            z: sum(mass * self.law.pmf(z - n) for n, mass in total.items()) for z in range(first + 1, last)
        }
        out[last] = sum(mass * self.law.at_least(last - n) for n, mass in total.items())
        out[first] = sum(mass * self.law.below(first + 1 - n) for n, mass in total.items())
        return out


def convolved(one: dict[int, Number], other: dict[int, Number]) -> dict[int, Number]:
    out: dict[int, Number] = {}
    for x, p in one.items():
        for y, q in other.items():
            out[x + y] = out.get(x + y, 0) + p * q
    return out


@dataclass(frozen=True, eq=False)
class Chain:
    """Lists one after another, and what comes last."""

    stages: tuple[Stage, ...]
    last: Bit | Bucket
    twin: str = ""

    def cell(self, counts: tuple[int, ...]) -> dict[Shown, dict[int, Number]]:
        """Return, by what the lists show of a cell and its sub-cells, the mass of each n that passes on."""
        parts: dict[Shown, dict[int, Number]] = {(): {0: 1}}
        for x in counts:
            each = self._through({(): {x: 1}}, self.stages[0])
            parts = {
                (*a, *b): convolved(ns, more) for (a, ns), (b, more) in itertools.product(parts.items(), each.items())
            }  # fmt: skip
        for stage in self.stages[1:]:
            parts = self._through(parts, stage)
        return parts

    def _through(self, parts: dict[Shown, dict[int, Number]], stage: Stage) -> dict[Shown, dict[int, Number]]:
        out: dict[Shown, dict[int, Number]] = {}
        for shown, ns in parts.items():
            for n, mass in ns.items():
                left = stage.passes(n, self.twin)
                for o, p in stage.shows(n).items():
                    held = out.setdefault((*shown, o), {})
                    for m, share in (left if o is None or self.twin == "listed too" else {0: 1}).items():
                        held[m] = held.get(m, 0) + mass * p * share
        return out

    def release(self, cells: Cells) -> dict[Shown, Number]:
        """Return {what all lists show, and what comes last: probability} of cells that share a bit."""
        out: dict[Shown, Number] = {}
        for each in itertools.product(*(self.cell(counts).items() for counts in cells)):
            shown = tuple(itertools.chain.from_iterable(part for part, _ in each))
            ends = self.last.outcomes([ns for _, ns in each], drawn=self.twin != "empty not drawn")
            for end, mass in ends.items():
                if mass:
                    out[(*shown, end)] = mass
        return out


def ratio(one: dict[Shown, Number], other: dict[Shown, Number]) -> Number:
    """Return the largest ratio of two distributions, in either direction."""
    if one.keys() != other.keys():
        return math.inf
    return max(max(p / other[o], other[o] / p) for o, p in one.items())


def spent(one: dict[Shown, Number], other: dict[Shown, Number], factor: Number) -> Number:
    """Return δ at e^ε = ``factor``, of the first against the second."""
    return sum(max(p - factor * other.get(o, 0), 0) for o, p in one.items())


def added(cells: Cells, most: int, per_key: int) -> Iterator[tuple[Cells, int]]:
    """Yield cells with up to ``most`` units more, at most ``per_key`` of them at one place; and how many."""
    for parts in itertools.product(range(per_key + 1), repeat=sum(map(len, cells))):
        if 0 < sum(parts) <= most:
            more = iter(parts)
            yield tuple(tuple(x + next(more) for x in counts) for counts in cells), sum(parts)


def worst(chain: Chain, starts: list[Cells], q: Number, most: int = 1, per_key: int = 1) -> float:
    """Return the largest loss per unit times b; 1 is allowed, and fractions say so exactly."""
    release, found = cache(chain.release), 0.0
    for cells in starts:
        for others, units in added(cells, most, per_key):
            loss = ratio(release(cells), release(others))
            if loss == math.inf:
                return math.inf
            scaled = math.log(loss) / -math.log(q) / units
            if isinstance(q, Fraction) and loss <= q**-units:
                scaled = min(scaled, 1.0)  # it is, whatever the logarithms of floats say
            found = max(found, scaled)
    return found


def rational(
    q: Fraction, *thresholds: int, texts: bool = False, bucket: bool = False, twin: str = ""
) -> Chain:
    """Return a chain of lists with these thresholds, and the ALP that the last one needs, all with this q."""
    law, noise = Laplace(q), RationalNoise(q)
    stages = []
    for place, bound in enumerate(thresholds):
        of_texts = texts and not place
        stages.append(Stage(bound, law, remainder(bound, noise, Fraction(1), texts=of_texts), of_texts))
    most = stages[-1].rest.most
    if twin in ("x itself", "cut"):  # which needs a wider level
        most = thresholds[-1] + (2 if twin == "x itself" else 0)
    last = Bucket(law, thresholds[-1] + 6) if bucket else Bit(Fraction(most), most * (1 / q - 1))
    return Chain(tuple(stages), last, twin)


def one_cell(bound: int) -> list[Cells]:
    return [((x,),) for x in range(bound + 4)]


# --- δ = 0: a list, then ALP --------------------------------------------------------------------------------------

RATIOS = (Fraction(1, 7), Fraction(1, 2), Fraction(2, 3), Fraction(9, 10))


@pytest.mark.parametrize("q", RATIOS, ids=str)
@pytest.mark.parametrize("bound", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("bucket", [False, True], ids=["alp", "sum"])
def test_a_list_and_what_comes_last_cost_what_the_list_costs(q: Fraction, bound: int, bucket: bool) -> None:
    """One cell with any count, also beyond the threshold; one, two and three units at once."""
    chain = rational(q, bound, bucket=bucket)
    found = worst(chain, one_cell(bound), q, 3, 3)
    assert 0.9999 <= found <= 1


@pytest.mark.parametrize("q", RATIOS, ids=str)
def test_the_bound_is_reached_where_nothing_is_listed(q: Fraction) -> None:
    """It is not the listed value alone that costs so much."""
    chain, found = rational(q, 6, bucket=True), 0.0
    for x in range(6):
        one, other = ({o: p for o, p in chain.release(((n,),)).items() if o[0] is None} for n in (x, x + 1))
        found = max(found, math.log(ratio(one, other)) / -math.log(q))
    assert 0.99 <= found <= 1 + 1e-12


@pytest.mark.parametrize(("most", "per_key"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3)])
@pytest.mark.parametrize("bucket", [False, True], ids=["alp", "sum"])
def test_cells_that_share_a_bit(most: int, per_key: int, bucket: bool) -> None:
    """Cells that nobody has, that are near the threshold and beyond it; units in one cell and in several."""
    q, bound = Fraction(1, 2), 4
    near = (0, 1, bound - 2, bound - 1, bound + 1)
    starts = [((x,), (y,)) for x, y in itertools.product(near, repeat=2)]
    if not bucket:
        starts += [((0,), (bound - 1,), (x,)) for x in (0, bound - 2)]
    chain = rational(q, bound, bucket=bucket)
    chain = replace(chain, stages=(replace(chain.stages[0], reach=4),))
    assert 0.9999 <= worst(chain, starts, q, most, per_key) <= 1


@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(4, 5)], ids=str)
@pytest.mark.parametrize(("most", "per_key"), [(1, 1), (2, 1), (2, 2)])
def test_top_list_then_list_then_alp(q: Fraction, most: int, per_key: int) -> None:
    """Sub-cells of one cell, and a second cell that shares its bit."""
    low, high = 3, 6
    chain = rational(q, high, low)
    chain = replace(chain, stages=tuple(replace(stage, reach=4) for stage in chain.stages))
    starts: list[Cells] = [((x, other),) for x in range(high + 2) for other in (0, 2)]
    assert 0.9999 <= worst(chain, starts, q, most, per_key) <= 1
    chain = replace(chain, stages=tuple(replace(stage, reach=1) for stage in chain.stages))
    assert worst(chain, [((high - 1,), (low,)), ((0, 1), (high - 1,))], q, most, per_key) <= 1


TWINS = {"x itself": RATIOS, "cut": RATIOS, "nearest": RATIOS[3:], "listed too": RATIOS}


@pytest.mark.parametrize(("twin", "q"), [(twin, q) for twin, qs in TWINS.items() for q in qs])
@pytest.mark.parametrize("bucket", [False, True], ids=["alp", "sum"])
def test_broken_twins_lose_more(twin: str, q: Fraction, bucket: bool) -> None:
    """Passed on: x itself, x cut at the threshold, g rounded to the nearest, or g of listed keys too."""
    assert worst(rational(q, 9, bucket=bucket, twin=twin), one_cell(9), q) > 1.5


@pytest.mark.parametrize("bucket", [False, True], ids=["alp", "sum"])
def test_cells_with_nothing_left_must_have_noise(bucket: bool) -> None:
    twin = rational(Fraction(1, 2), 6, bucket=bucket, twin="empty not drawn")
    assert worst(twin, one_cell(6), Fraction(1, 2)) == math.inf


@pytest.mark.parametrize("q", RATIOS, ids=str)
def test_two_encodings_divide_the_unit_or_lose_more(q: Fraction) -> None:
    chain = rational(q, 9)
    assert isinstance(chain.last, Bit)
    assert worst(replace(chain, last=replace(chain.last, times=2)), one_cell(9), q) > 1.3
    root = float(q) ** 0.5
    halves = Bit(chain.last.width, float(chain.last.width) * (1 / root - 1), times=2)
    assert worst(replace(chain, last=halves), one_cell(9), float(q)) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("twin", "least"), [("x itself", 2.3), ("cut", 2), ("nearest", 1.3), ("listed too", 2.7)]
)
def test_broken_twins_of_two_lists_lose_more(twin: str, least: float) -> None:
    chain = rational(Fraction(1, 2), 6, 3, twin=twin)
    assert worst(chain, [((x,),) for x in range(8)], Fraction(1, 2)) > least


def levels_loss(q: float, bound: int, alpha: float, width: float, g: Callable[[int], float]) -> float:
    """Return the loss times b of a list, and ALP of several levels that is fed real numbers."""
    law, p = Laplace(q), 1 / (alpha + 2)

    def bits(y: float) -> dict[Shown, float]:
        low, over = divmod(y / width, 1)
        out = {}
        for seen in itertools.product((0, 1), repeat=math.ceil(bound / width)):
            chance = [
                math.prod((1 - p if bit == (level < reached) else p) for level, bit in enumerate(seen))
                for reached in (int(low), int(low) + 1)
            ]
            out[seen] = (1 - over) * chance[0] + over * chance[1]
        return out

    found = [{o: law.below(bound - x) * p for o, p in bits(g(x)).items()} for x in range(bound + 3)]
    return max(math.log(ratio(*each)) / -math.log(q) for each in itertools.pairwise(found))


@pytest.mark.parametrize("q", [0.3, 0.5])
def test_exact_width_needs_the_step_of_whole_numbers(q: float) -> None:
    """A g whose steps are right for e^(Δ/b) needs a width of α·b; the one of this project may take the exact one."""
    bound, b = 5, -1 / math.log(q)
    law, rest = Laplace(q), remainder(bound, RationalNoise(Fraction(q)), Fraction(1), texts=False)

    def greedy(x: int) -> float:
        steps = (1 + b * math.log(law.below(bound - y - 1) / law.below(bound - y)) for y in range(x))
        return sum(max(step, 0.0) for step in steps)

    def ours(x: int) -> float:
        return int(rest(np.array([x]))[0]) / UNIT

    widths = {max(g(x), 1.0) for g in (ours, greedy) for x in range(bound + 1)}  # a level that ends there
    tried = [(width * (1 / q - 1), width) for width in sorted(widths)]
    assert max(levels_loss(q, bound, alpha, width, ours) for alpha, width in tried) <= 1 + 1e-9
    assert max(levels_loss(q, bound, alpha, width, greedy) for alpha, width in tried) > 1.05
    assert max(levels_loss(q, bound, alpha, alpha * b, greedy) for alpha, _ in tried) <= 1 + 1e-9


# --- δ > 0: names, then cells, then ALP ---------------------------------------------------------------------------


def new_names(chain: Chain, parts: tuple[int, ...]) -> Number:
    """Return the probability that one of these new keys is named."""
    first = chain.stages[0]
    return 1 - math.prod(first.law.below(first.threshold - part) for part in parts)


NAMED: list[tuple[Cells, str]] = [
    (((x,),), "one key") for x in range(9)
] + [(((x, y),), "two keys in a cell") for x in (0, 1, 4, 5) for y in (0, 4)] + [
    (((x,), (y,)), "two cells") for x in (0, 4, 5) for y in (0, 5)
]  # fmt: skip


@pytest.mark.parametrize("thresholds", [(6,), (6, 3)], ids=["names", "names and cells"])
@pytest.mark.parametrize(("most", "per_key"), [(1, 1), (2, 1), (2, 2), (3, 3)])
@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(4, 5)], ids=str)
def test_names_with_laplace_noise(thresholds: tuple[int, ...], most: int, per_key: int, q: Fraction) -> None:
    """Every outcome without a new name costs 1/b per unit, exactly; those with one have the probability of names."""
    chain = rational(q, *thresholds, texts=True)
    short = 3 if len(thresholds) > 1 else 4
    chain = replace(chain, stages=tuple(replace(stage, reach=short) for stage in chain.stages))
    release, tight = cache(chain.release), Fraction(0)
    for cells, _ in NAMED:
        for others, units in added(cells, most, per_key):
            if max(map(max, others)) > 7:
                continue
            without, with_user = release(cells), release(others)
            old = {o: p for o, p in with_user.items() if o in without}
            assert old.keys() == without.keys()
            loss = ratio(without, old)
            assert loss <= q**-units
            tight = max(tight, loss * q**units)
            pairs = zip(itertools.chain(*cells), itertools.chain(*others), strict=True)
            new = sum(p for o, p in with_user.items() if o not in without)
            assert new == new_names(chain, tuple(b for a, b in pairs if not a and b))
            delta = max(spent(with_user, without, q**-units), spent(without, with_user, q**-units))
            assert delta <= new
    assert tight > 0.99


@pytest.mark.parametrize("twin", ["x itself", "cut", "nearest", "listed too"])
def test_broken_twins_of_names_lose_more(twin: str) -> None:
    q = Fraction(9, 10)
    chain, found = rational(q, 9, texts=True, twin=twin), 0.0
    for x in range(12):
        without, with_user = (chain.release(((n,),)) for n in (x, x + 1))
        old = {o: p for o, p in with_user.items() if o in without}
        found = max(found, math.log(ratio(without, old)) / -math.log(q))
    assert found > 1.5


def truncated(epsilon: str, delta: str, *, cells: int = 0, twin: str = "") -> tuple[Chain, float]:
    """Return names by truncated geometric noise, cells beside them and ALP, or a noisy sum alone; and δ."""
    noise = noise_of("truncated_geometric", Fraction(delta))
    assert isinstance(noise, TruncatedGeometricNoise)
    scale = 1 / Fraction(epsilon)
    high = threshold.text_threshold(Fraction(delta), noise, scale, Sensitivity(1, 1))
    q = math.exp(-1 / scale)
    names = Stage(
        high, Truncated(noise, scale), remainder(high, noise, scale, texts=True), True, 40, float(UNIT)
    )
    stages = [names]
    if cells:
        law: Law = Truncated(noise, scale) if twin == "bounded noise" else Laplace(q)
        stages.append(
            Stage(cells, law, remainder(cells, LAPLACE, scale, texts=False), False, 12, float(UNIT))
        )
    most = stages[-1].rest.most if twin not in ("x itself", "cut") else stages[-1].threshold + 2
    last = Bit(float(most), most * (1 / q - 1)) if cells else Bucket(Laplace(q), high + 12)
    return Chain(tuple(stages), last, twin), float(noise.delta)


def worst_delta(chain: Chain, epsilon: str) -> float:
    """Return the largest δ where a key of a user grows by 1, wherever it is; another key may be in its cell."""
    found, factor, high = 0.0, math.exp(Fraction(epsilon)), chain.stages[0].threshold
    release = cache(chain.release)
    for x in range(2 * high + 2):
        for other in ((), (high - 1,)) if x in (0, 1, high - 1) and high < 9 else ((),):
            pair = [release(((count, *other),)) for count in (x, x + 1)]
            found = max(found, spent(*pair, factor), spent(*reversed(pair), factor))
    return found


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [("1/2", "1e-3"), ("1", "1e-3"), ("1", "1e-6"), ("1", "1/20"), ("2", "1e-3"), ("3", "1e-2")],
)
@pytest.mark.parametrize("cells", [0, 3], ids=["names", "names and cells"])
def test_truncated_geometric_names_spend_delta_once(epsilon: str, delta: str, cells: int) -> None:
    """In floats, with a tolerance of 10⁻⁶ of δ and 10⁻¹³."""
    chain, claimed = truncated(epsilon, delta, cells=cells)
    found = worst_delta(chain, epsilon)
    assert claimed * 0.99 <= found <= claimed * (1 + 1e-6) + 1e-13


@pytest.mark.parametrize("twin", ["x itself", "cut", "nearest", "listed too"])
@pytest.mark.parametrize("cells", [0, 3], ids=["names", "names and cells"])
def test_broken_twins_of_truncated_geometric_names_spend_more(twin: str, cells: int) -> None:
    assert worst_delta(truncated("1", "1e-3", cells=cells, twin=twin)[0], "1") > 2e-3


def test_bounded_noise_on_cells_spends_delta_twice() -> None:
    assert worst_delta(truncated("1", "1e-3", cells=3, twin="bounded noise")[0], "1") > 1.9e-3


def test_what_does_not_fit_is_refused() -> None:
    """Bounded noise is for one key per user, and Gaussian noise passes nothing on; nor may noise be too small."""
    one, two = Sensitivity(1, 1), Sensitivity(2, 1)
    bounded = noise_of("truncated_geometric", Fraction(1, 1000))
    for noise in (LAPLACE, bounded):
        assert threshold.chain_holds(noise, Fraction(2), Fraction(1, 2), one)
        assert not threshold.chain_holds(noise, Fraction(2) - Fraction(1, 10**9), Fraction(1, 2), one)
    assert threshold.chain_holds(LAPLACE, Fraction(4), Fraction(1, 2), two)
    assert not threshold.chain_holds(bounded, Fraction(4), Fraction(1, 2), two)
    assert not threshold.chain_holds(noise_of("gaussian"), Fraction(4), Fraction(1, 2), one)


# --- what passes on, as a table -----------------------------------------------------------------------------------

SCALES = ("1/5", "1/2", "1", "3", "10", "100", "1000", "16384", "32768", "100000", "1048576")
_BITS = 240


def e_to(scale: Fraction) -> tuple[int, int]:
    """Enclose q = e^(−1/b), in units of 2^−240."""
    with mpmath.workprec(2 * _BITS):
        q = mpmath.exp(-mpmath.mpf(scale.denominator) / scale.numerator) * mpmath.mpf(2) ** _BITS
        return int(q) - 1, int(q) + 2


def power(base: int, exponent: int) -> int:
    """Return a power of a number in units of 2^−240, rounded up."""
    out = 1 << _BITS
    for digit in f"{exponent:b}":
        out = -(-out * out >> _BITS)
        out = -(-out * base >> _BITS) if digit == "1" else out
    return out


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("texts", [False, True], ids=["cells", "texts"])
def test_every_step_is_small_enough(scale: str, texts: bool) -> None:
    """(step) at every step, with q enclosed to 2^−238; within a grain the first step from the threshold decides."""
    b = Fraction(scale)
    rest = remainder(10**9, LAPLACE, b, texts=texts)
    grain, table = rest.grain, rest.lowered
    assert (grain > 1) == (b >= 1 << 15)
    assert table[-1] == 0
    drops, left = np.divmod(-np.diff(table), grain)
    assert not left.any()
    lost = [int(drop) + 1 for drop in drops]  # a step is 1 − lost · 2^−20
    assert all(1 <= each <= UNIT for each in lost)
    low, high = e_to(b)
    one, factor, held = 1 << _BITS, power(high, grain), power(high, 1)
    for each in [*lost, 1]:  # x grows by 1 at t = i·grain + 2, where P[Z ≥ t − 1] is q^(t − 1)/(1 + q)
        assert each * (one + low - held * high // one - 1) >= UNIT * held
        held = -(-held * factor >> _BITS)
    # and no more is lost than the rounding: 1 − E of the step
    q, t = float(mpmath.exp(-1 / mpmath.mpf(float(b)))), 2 + grain * np.arange(len(lost), dtype=np.float64)
    with np.errstate(under="ignore"):
        r = [q**at * (at + q / -math.expm1(-1 / float(b))) / (1 + q - q**at) for at in (t - 1, t)]
    wanted = np.minimum(r[0] - r[1], 1.0) * UNIT
    assert np.all(np.array(lost) >= wanted - 0.1)
    assert np.all(np.array(lost) <= wanted + 1.1)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("bound", [1, 2, 3, 7, 1000, 10**6])
@pytest.mark.parametrize("texts", [False, True], ids=["cells", "texts"])
def test_counts_pass_on_by_the_table(scale: str, bound: int, texts: bool) -> None:
    """g(0) = 0, each step is that of the table, and nothing more passes on beyond the threshold."""
    b = Fraction(scale)
    rest = remainder(bound, LAPLACE, b, texts=texts)
    lost = -np.diff(rest.lowered) // rest.grain + 1
    starts = {0, bound // 2, max(bound - 3000, 0), max(bound - rest.grain * len(lost) - 5, 0)}
    x = np.unique(np.concatenate([np.arange(start, start + 3005) for start in starts]))
    g = rest(x)
    assert g[0] == 0
    near = np.diff(x) == 1
    at = (bound - x[:-1] - 2) // rest.grain  # of the table
    expected = UNIT - np.append(lost, 1)[np.clip(at, 0, len(lost))]
    expected[bound - x[:-1] < 2] = 0
    first = int(g[1])
    assert 0 <= first < UNIT
    same = near & (x[:-1] > 0) if texts else near
    assert (np.diff(g)[same] == expected[same]).all()
    assert rest.most == max(-(-int(g.max()) // UNIT), 1)
    if texts and bound > 1:  # from 0 to 1: 1 − P[named]/(1 − q), where that is above 0
        low, high = e_to(b)
        named = power(high, bound - 1)
        assert (
            first == 0
            or (UNIT - first) * ((1 << _BITS) - high) * ((1 << _BITS) + low) >= UNIT * named << _BITS
        )


@pytest.mark.parametrize(
    ("epsilon", "delta"), [("1/4", "1e-6"), ("1", "1e-3"), ("1", "1/20"), ("1", "1e-9"), ("4", "1e-2")]
)
def test_every_step_beside_truncated_geometric_names(epsilon: str, delta: str) -> None:
    """(step), or no step where F falls faster than q."""
    noise = noise_of("truncated_geometric", Fraction(delta))
    assert isinstance(noise, TruncatedGeometricNoise)
    scale = 1 / Fraction(epsilon)
    bound = threshold.text_threshold(Fraction(delta), noise, scale, Sensitivity(1, 1))
    chances = [Fraction(low, 1 << 384) for low, _ in chances_to_list(1 / scale, noise.delta)]
    assert bound == next(n for n, chance in enumerate(chances) if 2 * chance >= 1)
    rest, q = remainder(bound, noise, scale, texts=True), Fraction(e_to(scale)[1], 1 << _BITS)
    hidden = [1 - chances[min(n, len(chances) - 1)] for n in range(bound + 5)]
    g = [int(each) for each in rest(np.arange(bound + 5))]
    assert g[0] == 0
    for x in range(bound + 4):
        step = Fraction(g[x + 1] - g[x], UNIT)
        assert step == 0 if x + 1 >= bound else 0 <= step < 1
        if hidden[x + 1]:
            assert step == 0 or step <= 1 - (1 - hidden[x + 1] / hidden[x]) / (1 - q)
            assert q * hidden[x] - hidden[x + 1] <= q * noise.delta + Fraction(1, 1 << 200)


@pytest.mark.parametrize("q", [*RATIOS, Fraction(99, 100)], ids=str)
@pytest.mark.parametrize("bound", [1, 4, 20])
def test_listed_values_and_what_passes_on_are_unbiased_together(q: Fraction, bound: int) -> None:
    """E[v; listed] + F(x)·(E g + offset) = x, but for the steps that are rounded down."""
    law, rest = Laplace(q), remainder(bound, RationalNoise(q), Fraction(-1 / math.log(q)), texts=False)
    for x in range(bound + 6):
        t = bound - x
        if t >= 1:  # E[Z; Z ≥ t]
            beyond = law.at_least(t) * (t + q / (1 - q))
        else:
            beyond = law.at_least(1 - t) * (1 - t + q / (1 - q))
        listed = x * law.at_least(t) + beyond
        passed = sum(n * p for n, p in Stage(bound, law, rest).passes(x).items())
        found = listed + law.below(t) * (passed + Fraction(rest.offset))
        assert abs(float(found - x)) <= 1e-5 + 1.1 * len(rest.lowered) / UNIT * float(law.below(t))


# --- plans as they are made ---------------------------------------------------------------------------------------


def planned(keys: int = 2000, **changes: Any) -> Plan:
    params = hg.ReleaseParams(**{"epsilon": "1", "max_contributions": 1, **changes})
    return make_plan(params.resolve(), Sizes(50 * keys, keys, (), Fraction(0)))


def chain_of(plan: Plan) -> tuple[Chain, float]:
    """Return the mechanisms of a plan in floats, and q."""
    assert plan.chained
    assert isinstance(plan.layout, AlpLayout)
    q = math.exp(-1 / plan.scale)

    def stage(bound: int, rest: Remainder, *, texts: bool) -> Stage:
        law = (
            Truncated(plan.noise, plan.scale)
            if texts and isinstance(plan.noise, TruncatedGeometricNoise)
            else Laplace(q)
        )
        return Stage(bound, law, rest, texts, 3, float(UNIT))

    stages = [stage(plan.threshold, plan.remainder, texts=plan.domain_bits is None)]
    if plan.top is not None:
        stages.insert(0, stage(plan.top.threshold, plan.top_remainder, texts=not plan.sub_cells))
    return Chain(tuple(stages), Bit(float(plan.layout.width), float(plan.layout.alpha))), q


PLANS: dict[str, dict[str, Any]] = {
    "default": {},
    "C = 2": {"max_contributions": 2},
    "epsilon 4": {"epsilon": "4"},
    "one list": {"keys": 100},
    "C = 8, many keys": {"max_contributions": 8, "keys": 10**6},
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_at_delta_0_costs_what_its_list_costs(name: str) -> None:
    """In floats, with a tolerance of 10⁻⁹."""
    plan = planned(**PLANS[name])
    chain, q = chain_of(plan)
    assert isinstance(plan.layout, AlpLayout)
    assert plan.scale * plan.params.split.threshold == plan.params.max_contributions
    tops = [stage.threshold for stage in chain.stages]
    near = sorted({max(bound + by, 0) for bound in (1, *tops) for by in (-3, -2, -1, 0)})
    starts: list[Cells] = [((x,),) for x in near]
    assert 0.99 <= worst(chain, starts, q) <= 1 + 1e-9
    hotter = replace(chain, last=replace(chain.last, alpha=2 * chain.last.alpha))
    assert plan.layout.width == 1 or worst(hotter, starts, q) > 1.02


@pytest.mark.parametrize(("noise", "most"), [("truncated_geometric", 1), ("laplace", 2)])
@pytest.mark.parametrize("epsilon", ["1", "3"])
def test_a_plan_with_names_spends_its_epsilon_and_delta(noise: str, most: int, epsilon: str) -> None:
    """All of a user is in one key, old or new."""
    selection = None if most == 1 else hg.Threshold()
    plan = planned(
        epsilon=epsilon, delta="1e-3", max_contributions=most, max_per_key=most, selection=selection
    )
    assert plan.noise_name == noise
    chain, q = chain_of(plan)
    assert plan.heavy_from == chain.stages[0].threshold
    assert chain.stages[0].texts
    chain = replace(chain, stages=tuple(replace(stage, reach=30) for stage in chain.stages))
    release, found = cache(lambda x: chain.release(((x,),))), 0.0
    for x in range(2 * plan.heavy_from):
        pair = release(x), release(x + most)
        found = max(found, spent(*pair, q**-most), spent(*reversed(pair), q**-most))
    assert 0.05e-3 < found <= 1e-3 * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", ["1/100", "1/8", "1", "8", "50"])
@pytest.mark.parametrize("most", [1, 3, 64])
@pytest.mark.parametrize("passes", [1, 2, 9, 1000, 10**7])
def test_the_level_is_wide_enough(epsilon: str, most: int, passes: int) -> None:
    """C · ln(1 + α/w) ≤ ε, in one level that all that passes on fits in."""
    spec = LayoutSpec(
        Fraction(epsilon), Fraction(0), most, most, None, passes, 1000, 1000, (), (), Fraction(1),
        "remainder",
    )  # fmt: skip
    layout = ENCODING.plan(spec)
    assert layout.levels == 1
    assert layout.width >= layout.cap == passes
    with mpmath.workprec(200):
        ratio = layout.alpha / layout.width
        loss = most * mpmath.log1p(mpmath.mpf(ratio.numerator) / ratio.denominator)
        assert loss <= mpmath.mpf(spec.epsilon.numerator) / spec.epsilon.denominator
        assert loss >= 0.99 * spec.epsilon or layout.alpha in (Fraction(1, 100), Fraction(1000))


# --- the code draws these distributions ---------------------------------------------------------------------------

KEYS = 4_000
LOW, HIGH = 4, 7
TEXTS = pa.array([b"a", b"b"], pa.large_binary())


def released(part: Histogram, **given: Any) -> Iterator[tuple[Heavy, Histogram]]:
    for i in range(KEYS):
        key = ReleaseKey(i.to_bytes(32, "little"))
        yield threshold.release_shard(7, part, scale=Fraction(2), release_key=key, passes=True, **given)


def modelled(
    counts: tuple[int, ...],
    thresholds: tuple[int, ...],
    law: Law,
    noise: LaplaceNoise,
    *,
    texts: bool = False,
) -> dict[int, float]:
    """Return {code of what the lists show of a cell, and of what passes on: probability}."""
    stages = []
    for place, bound in enumerate(thresholds):
        named = texts and not place
        rest = remainder(bound, noise if named else LAPLACE, Fraction(2), texts=named)
        stages.append(Stage(bound, law if named else Laplace(math.exp(-0.5)), rest, named, 40, float(UNIT)))
    out: dict[int, float] = {}
    for shown, ns in Chain(tuple(stages), Bit(1, 1)).cell(counts).items():
        for n, mass in ns.items():
            *names, last = (each or 0 for each in shown)
            at = code(*names, min(last, thresholds[0] - 1) if names else last, n)
            out[at] = out.get(at, 0.0) + float(mass)
    return out


def code(*seen: int) -> int:
    """Return one number for some small ones, of which no more than a bit is seen of the first ones."""
    *lists, last, n = seen
    out = 0
    for each in lists:
        out = 2 * out + (each > 0)
    return (out * 100 + last) * 100 + n


def the_one(part: Histogram, cell: int) -> int:
    """Return what passes on of the only cell."""
    assert part.texts is None
    assert part.fingerprints.tolist() in ([], [cell])
    assert (part.counts > 0).all()
    return int(part.counts.sum())


@pytest.mark.fresh_noise(rate=1e-5)
def test_code_draws_a_list_and_what_it_passes_on() -> None:
    """A cell of the data; false alarms: 10⁻⁷."""
    bits, x = 8, 3
    assert (1 << bits) // NOISE_SHARDS == 1
    part = Histogram(np.array([7], np.uint64), np.array([x], np.int64))
    drawn = []
    for heavy, rest in released(part, threshold=LOW, noise=LAPLACE, domain_bits=bits):
        assert heavy.fingerprints.tolist() in ([], [7])
        drawn.append(code(int(heavy.values.sum()), the_one(rest, 7 << 56)))
    law = Laplace(math.exp(-0.5))
    assert fits(drawn, modelled((x,), (LOW,), law, LAPLACE))
    assert not fits(drawn, modelled((x + 1,), (LOW,), law, LAPLACE))
    assert not fits(drawn, modelled((x,), (LOW + 1,), law, LAPLACE))


@pytest.mark.fresh_noise(rate=1e-5)
def test_code_draws_two_lists_and_what_they_pass_on() -> None:
    """A cell with two sub-cells of the data; false alarms: 10⁻⁷."""
    bits, top = 8, TopList(10, HIGH)
    part = Histogram(np.array([7 * 4 + 1, 7 * 4 + 2], np.uint64), np.array([6, 2], np.int64))
    drawn = []
    for heavy, rest in released(part, threshold=LOW, noise=LAPLACE, domain_bits=bits, top=top):
        found = dict(zip(heavy.fingerprints.tolist(), heavy.values.tolist(), strict=True))
        assert all((value >= HIGH) == bool(which & 1) for which, value in found.items())
        seen = (found.get(which, 0) for which in (29 << 1 | 1, 30 << 1 | 1, 7 << 3))
        drawn.append(code(*seen, the_one(rest, 7 << 56)))
    law = Laplace(math.exp(-0.5))
    assert fits(drawn, modelled((6, 2), (HIGH, LOW), law, LAPLACE))
    assert not fits(drawn, modelled((7, 2), (HIGH, LOW), law, LAPLACE))
    assert not fits(drawn, modelled((6, 3), (HIGH, LOW), law, LAPLACE))


def of_names(name: str) -> tuple[LaplaceNoise, Law, int]:
    """Return the noise of texts, its probabilities, and τ, at the scale of these tests."""
    noise = noise_of(name, Fraction(1, 20))
    assert isinstance(noise, LaplaceNoise)
    if isinstance(noise, TruncatedGeometricNoise):
        law = Truncated(noise, Fraction(2))
        return noise, law, law.middle
    return noise, Laplace(math.exp(-0.5)), HIGH


@pytest.mark.parametrize("name", ["truncated_geometric", "laplace"])
@pytest.mark.fresh_noise(rate=1e-5)
def test_code_draws_names_cells_and_what_they_pass_on(name: str) -> None:
    """Two keys in a cell; false alarms: 10⁻⁷ per comparison."""
    noise, law, high = of_names(name)
    x = (high - 1, 2)
    part = Histogram(np.array([7 << 56 | 1, 7 << 56 | 2], np.uint64), np.array(x, np.int64), TEXTS)
    drawn = []
    for heavy, rest in released(part, threshold=3, noise=noise, domain_bits=8, top=TopList(None, high)):
        assert heavy.texts is not None
        assert heavy.cells is not None
        assert heavy.cells.fingerprints.tolist() in ([], [7])
        assert heavy.cells.values.max(initial=0) < high <= heavy.values.min(initial=high)
        names = (int(text in heavy.texts.to_pylist()) for text in (b"a", b"b"))
        listed = int(heavy.cells.values.sum())
        drawn.append(code(*names, listed, the_one(rest, 7 << 56)))
    assert fits(drawn, modelled(x, (high, 3), law, noise, texts=True))
    assert not fits(drawn, modelled((x[0] + 1, 2), (high, 3), law, noise, texts=True))


@pytest.mark.parametrize("name", ["truncated_geometric", "laplace"])
@pytest.mark.fresh_noise(rate=1e-5)
def test_code_draws_names_and_what_they_pass_on(name: str) -> None:
    """Without cells beside them; false alarms: 10⁻⁷ per comparison."""
    noise, law, high = of_names(name)
    x = (high - 1, 2)
    part = Histogram(np.array([7 << 56 | 1, 7 << 56 | 2], np.uint64), np.array(x, np.int64), TEXTS)
    drawn: tuple[list[int], list[int]] = ([], [])
    for heavy, rest in released(part, threshold=high, noise=noise, domain_bits=None):
        assert heavy.texts is not None
        assert heavy.cells is None
        values = dict(zip(heavy.texts.to_pylist(), heavy.values.tolist(), strict=True))
        passed = dict(zip(rest.fingerprints.tolist(), rest.counts.tolist(), strict=True))
        for seen, text, place in zip(drawn, (b"a", b"b"), part.fingerprints.tolist(), strict=True):
            seen.append(code(values.get(text, 0), passed.pop(place, 0)))
        assert not passed
    for seen, count in zip(drawn, x, strict=True):
        assert fits(seen, modelled((count,), (high,), law, noise, texts=True))
        assert not fits(seen, modelled((count + 1,), (high,), law, noise, texts=True))


@pytest.mark.fresh_noise(rate=1e-5)
def test_code_sets_bits_for_what_passes_on() -> None:
    """With the probability n/w, in one level."""
    prints = np.arange(KEYS, dtype=np.uint64) << np.uint64(40)
    for n, w in ((1, 3), (2, 3), (3, 3)):
        part = Histogram(prints, np.full(KEYS, n, np.int64))
        key = ReleaseKey(n.to_bytes(32, "little"))
        y = round_shard(7, part, cap=w, width=Fraction(w), levels=1, release_key=key)
        assert fits(y, {1: n / w, 0: 1 - n / w})


@pytest.mark.parametrize("texts", [False, True], ids=["cells", "texts"])
@pytest.mark.fresh_noise(rate=1e-5)
def test_an_empty_shard_has_false_cells_and_passes_nothing_on(texts: bool) -> None:
    nothing, total = Histogram.empty(texts=texts), 0
    for i in range(200):
        heavy, rest = threshold.release_shard(
            7, nothing, threshold=3, noise=LAPLACE, scale=Fraction(1), domain_bits=12,
            top=TopList(None if texts else 14, 9), release_key=ReleaseKey(i.to_bytes(32, "little")), passes=True,
        )  # fmt: skip
        assert not len(rest)
        cells = heavy.cells if texts else heavy
        assert cells is not None
        assert len(heavy) == 0 or not texts
        total += len(cells) if texts else int((heavy.values < 9).sum())
    mean = 200 * 16 * float(Laplace(math.exp(-1)).at_least(3))
    assert abs(total - mean) < 5.5 * math.sqrt(mean)  # false alarms: 10⁻⁷


def test_nothing_passes_on_where_nothing_asks_for_it() -> None:
    part = Histogram(np.array([7 << 56 | 1, 7 << 56 | 2], np.uint64), np.array([3, 4], np.int64), TEXTS)
    for bits, top in ((None, None), (8, TopList(None, HIGH))):
        _, rest = threshold.release_shard(
            7, part, threshold=HIGH, noise=LAPLACE, scale=Fraction(2), domain_bits=bits, top=top,
            release_key=ReleaseKey(bytes(32)),
        )  # fmt: skip
        assert not len(rest)
