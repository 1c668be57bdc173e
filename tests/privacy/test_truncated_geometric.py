"""Truncated geometric noise: (ε, δ) by exact enumeration, optimal selection, and the sampler's distribution."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import hushgram as hg
from hushgram.errors import ParameterError
from hushgram.key_selection import threshold
from hushgram.key_selection.forecast import most_chances
from hushgram.noise import truncated_geometric
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.intervals import enclose
from hushgram.noise.noises import Noise, noise_of
from hushgram.sensitivity import Sensitivity
from hushgram.sparse_histogram.plan import make_plan, release_events
from hushgram.sparse_histogram.sizing import Sizes
from tests.statistics import fits

ONE = Sensitivity(1, 1)
CASES = [
    ("1", "1e-6"),
    ("1/2", "1e-3"),
    ("49/100", "1e-9"),
    ("3", "1/50"),
    ("1/8", "1/100"),
    ("9", "1e-4"),
    ("1", "3/5"),
]
EXACT = 80  # decimal digits of the enumeration


def made(epsilon: str, delta: str) -> tuple[Noise, Fraction, Fraction, int]:
    """Noise, ε, δ and τ as a release has them."""
    exact, most = Fraction(epsilon), Fraction(delta)
    noise = noise_of("truncated_geometric", most)
    (scale,) = noise.scales((exact,), most, ONE)
    assert scale == 1 / exact
    return noise, exact, most, threshold.text_threshold(most, noise, scale, ONE)


def holds(bound: int, noise: Noise, scale: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    """Whether the privacy maps of a plan accept threshold and noise: either costs δ, and both together no more."""
    parts = threshold.privacy_map(bound, noise, scale, ONE), noise.privacy_map((scale,), epsilon, ONE)
    return max(parts) <= delta


def law(noise: Noise, epsilon: Fraction) -> dict[int, mpmath.mpf]:
    """{z: P(Z = z)}, from the noise's own tails, to EXACT digits."""
    span = range(-150, 150)
    tails = [enclose(noise.tail(1 / epsilon, z), 512)[0] for z in span]
    found = zip(span, tails, tails[1:], strict=False)
    return {z: mpmath.mpf(p.numerator) / p.denominator for z, a, b in found if (p := a - b) > 0}


def outputs(mass: dict[int, mpmath.mpf], count: int, bound: int) -> dict[int | None, mpmath.mpf]:
    """{released value, None where the key is not listed: probability} of a key with this count."""
    if count == 0:
        return {None: mpmath.mpf(1)}
    out: dict[int | None, mpmath.mpf] = {count + z: p for z, p in mass.items() if count + z >= bound}
    out[None] = mpmath.fsum(p for z, p in mass.items() if count + z < bound)
    return out


def worst_delta(mass: dict[int, mpmath.mpf], bound: int, epsilon: Fraction) -> mpmath.mpf:
    """The largest δ at ε over all pairs of counts that differ by one user, in both directions."""
    factor, worst = mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator), mpmath.mpf(0)
    for count in range(bound + max(mass) - min(mass) + 2):
        one, more = (outputs(mass, each, bound) for each in (count, count + 1))
        for p, q in ((one, more), (more, one)):
            found = mpmath.fsum(max(chance - factor * q.get(value, 0), 0) for value, chance in p.items())
            worst = max(worst, found)
    return worst


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_delta_by_enumeration_is_what_was_asked_for(epsilon: str, delta: str) -> None:
    with mpmath.workdps(EXACT):
        noise, exact, most, bound = made(epsilon, delta)
        mass = law(noise, exact)
        assert abs(mpmath.fsum(mass.values()) - 1) < mpmath.mpf(10) ** -60
        found = worst_delta(mass, bound, exact)
        asked = mpmath.mpf(most.numerator) / most.denominator
        assert asked * (1 - mpmath.mpf(10) ** -15) <= found <= asked * (1 + mpmath.mpf(10) ** -30)
        assert holds(bound, noise, 1 / exact, exact, most)


@pytest.mark.parametrize(("epsilon", "delta"), CASES[:-1])
def test_broken_twins_are_rejected(epsilon: str, delta: str) -> None:
    """A threshold one lower; noise with fewer values than δ needs; noise of a smaller scale; ends cut off."""
    with mpmath.workdps(EXACT):
        noise, exact, most, bound = made(epsilon, delta)
        asked = mpmath.mpf(most.numerator) / most.denominator
        assert worst_delta(law(noise, exact), bound - 1, exact) > 1.1 * asked
        assert not holds(bound - 1, noise, 1 / exact, exact, most)
        shorter, scale = noise_of("truncated_geometric", most * 5 / 4), 1 / exact
        twin = threshold.text_threshold(most * 5 / 4, shorter, scale, ONE)
        assert worst_delta(law(shorter, exact), twin, exact) > 1.1 * asked
        assert not holds(twin, shorter, scale, exact, most)
        assert worst_delta(law(noise, exact * 11 / 10), bound, exact) > 1.001 * asked
        assert not holds(bound, noise, scale * 10 / 11, exact, most)
        mass = law(noise, exact)
        mass[0] += mass.pop(min(mass)) + mass.pop(min(mass))  # what is cut off goes to the middle
        assert worst_delta(mass, bound, exact) > 1.1 * asked


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_no_selection_lists_a_key_more_often(epsilon: str, delta: str) -> None:
    """π is the recursion of Desfontaines et al., which no (ε, δ)-DP selection exceeds, in other arithmetic."""
    noise, exact, most, bound = made(epsilon, delta)
    users = np.arange(0, 3 * bound)
    listed = noise.law(float(1 / exact)).tail(bound - users.astype(float))
    optimal, e, d = [0.0], math.exp(exact), float(most)
    for _ in users[1:]:
        last = optimal[-1]
        optimal.append(min(e * last + d, 1 - (1 - last - d) / e, 1.0))
    assert listed == pytest.approx(optimal, rel=1e-9)
    limit = most_chances(users.astype(float), float(exact), d)
    assert np.all(listed <= limit * (1 + 1e-9))
    assert listed[listed < 0.1] == pytest.approx(limit[listed < 0.1], rel=1e-9)
    other = noise_of("laplace")
    level = threshold.text_threshold(most, other, 1 / exact, ONE)
    assert level >= bound
    less = np.where(users > 0, other.law(float(1 / exact)).tail(level - users.astype(float)), 0.0)
    assert np.all(less <= listed * (1 + 1e-9) + 1e-15)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [("1", "1e-6"), ("1/2", "1e-3"), ("1/20", "1/100"), ("3", "1/50")]
)
@pytest.mark.fresh_noise(rate=1e-5)
def test_draws_fit_and_noise_off_by_a_twentieth_is_rejected(epsilon: str, delta: str) -> None:
    """False-alarm rate 1e-7; another ε, another δ where it matters, and a shift are rejected."""
    noise, exact, most, _ = made(epsilon, delta)
    draws = noise.sample(1 / exact, 300_000, ReleaseKey(bytes(range(32))).source(f"test-{epsilon}"))

    def mass(rate: Fraction, within: Fraction, shift: int = 0) -> dict[int, float]:
        found = noise_of("truncated_geometric", within).law(float(1 / rate))
        span = np.arange(-600.0, 600.0)
        return {int(z) + shift: p for z, p in zip(span, found.pmf(span).tolist(), strict=True) if p}

    assert fits(draws, mass(exact, most))
    assert not fits(draws, mass(exact * 21 / 20, most))
    assert not fits(draws, mass(exact * 20 / 21, most))
    assert not fits(draws, mass(exact, most, 1))
    if most > Fraction(1, 10**4):
        assert not fits(draws, mass(exact, most * 6 / 5))
    assert set(draws.tolist()) <= set(mass(exact, most))


class _Words:
    """Stated words instead of random ones."""

    def __init__(self, *words: int) -> None:
        self._left = list(words)

    def words(self, number: int) -> np.ndarray:
        taken, self._left = self._left[:number], self._left[number:]
        return np.array(taken, np.uint64)


def test_a_tie_looks_at_further_digits() -> None:
    """Where 64 digits of a uniform number are those of some π(n), the next ones decide; π(1) here is below 2^−64."""
    noise, rate = noise_of("truncated_geometric", Fraction(1, 1 << 70)), Fraction(1)
    bound = threshold.text_threshold(Fraction(1, 1 << 70), noise, 1 / rate, ONE)
    top = bound - 1
    digits = truncated_geometric._digits(rate, Fraction(1, 1 << 70), 128)
    assert digits[0] == 1 << 58
    drawn = [
        noise.sample(Fraction(1), 1, _Words(0, rest))[0]  # type: ignore[arg-type]
        for rest in ((1 << 58) - 1, (1 << 58) + 1, digits[1] + 1)
    ]
    assert drawn == [top, top - 1, top - 2]
    assert noise.sample(Fraction(1), 1, _Words(0, 1 << 58, 5))[0] == top - 1  # type: ignore[arg-type]


def test_privacy_map() -> None:
    delta = Fraction(1, 10**6)
    noise = noise_of("truncated_geometric", delta)
    assert delta * (1 - Fraction(1, 1 << 62)) < noise.privacy_map((Fraction(1),), Fraction(1), ONE) <= delta
    assert noise.privacy_map((Fraction(99, 100),), Fraction(1), ONE) == 1
    assert (
        noise.privacy_map((Fraction(2), Fraction(2)), Fraction(1), ONE) <= delta
    )  # buckets with Laplace noise
    assert noise.privacy_map((Fraction(2), Fraction(2)), Fraction(99, 100), ONE) == 1
    for bounds in (Sensitivity(2, 1), Sensitivity(2, 2)):
        assert noise.privacy_map((Fraction(2),), Fraction(1), bounds) == 1
    for bad in (Fraction(0), Fraction(1)):
        with pytest.raises(ParameterError, match="needs delta above 0"):
            noise_of("truncated_geometric", bad).law(1.0)
    with pytest.raises(ParameterError, match="needs delta above 0"):
        noise.sample_tail(Fraction(1), 3, 1, ReleaseKey(bytes(32)).source("test"))


def test_moments_and_law_are_those_of_the_tails() -> None:
    for epsilon, delta in CASES:
        noise, exact, _, _ = made(epsilon, delta)
        mass, found = law(noise, exact), noise.law(float(1 / exact))
        values, chances = np.array(list(mass), float), np.array(list(mass.values()), float)
        assert found.pmf(values) == pytest.approx(chances, rel=1e-12)
        assert found.mean == pytest.approx(values @ chances, abs=1e-12)
        assert abs(found.mean) <= 0.5
        assert found.variance == pytest.approx(values**2 @ chances - (values @ chances) ** 2)
        assert float(noise.variance(1 / exact)) == pytest.approx(found.variance)
        outside = np.array([values.min() - 5, values.max() + 1])
        assert found.pmf(outside).tolist() == [0, 0]
        assert found.tail(outside).tolist() == [1, 0]
        assert found.below(outside).tolist() == [0, 1]
        assert found.tail(values) + found.below(values) == pytest.approx(1)
        for level in (0.5, 0.95, 0.999, 1 - 1e-9):
            radius, half = found.radius(level), found.interval(level)
            assert chances[np.abs(values) <= radius].sum() >= level - 1e-12
            assert chances[np.abs(values) < radius].sum() < level or radius == 0
            assert chances[np.abs(values - found.mean) <= half].sum() >= level - 1e-12
        sums, often = chances, 1
        while often < 7:
            sums, often = np.convolve(sums, chances), often + 1
        at = often * values.min() + np.arange(len(sums))
        inside = np.abs(at - often * found.mean) <= found.interval(0.95, often)
        assert sums[inside].sum() + 1e-12 >= 0.95
        assert found.interval(0.95, 40) > found.interval(0.95, 30) > 0


def test_estimates_from_listed_values_are_unbiased_on_average_over_counts() -> None:
    """Σ over x of E[c(x + Z)] − E[Z; x + Z ≥ cut] is 0, and each is small far from the cut."""
    noise, exact, _, _ = made("49/100", "1e-9")
    found = noise.law(float(1 / exact))
    values, chances, cut = found.values, found.pmf(found.values), 300
    off = []
    for x in range(100, 500):
        selected = float(chances @ (values * (x + values >= cut)))
        off.append(float(chances @ found.selected(x + values, cut)) - selected)
    assert abs(sum(off)) < 1e-6
    assert max(abs(off[0]), abs(off[-1])) < 1e-9


def test_it_is_the_noise_of_one_key_per_user_where_its_threshold_is_not_above_the_other() -> None:
    given = {"epsilon": "1", "delta": "1e-6", "max_contributions": 1}
    params = hg.ReleaseParams(**given).resolve("record")  # of users, their numbers are released too
    assert params.noise == "truncated_geometric"
    plan = make_plan(params, Sizes(10**6, 10**5, (), Fraction(0)))
    guarantee = plan.guarantee()
    assert (guarantee.epsilon, guarantee.delta) == (1, Fraction(1, 10**6))
    laplace = threshold.text_threshold(params.delta, noise_of("laplace"), plan.scale, ONE)
    assert plan.heavy_from < laplace
    assert type(plan).from_dict(plan.to_dict()).to_dict() == plan.to_dict()
    assert {event.kind for event in plan.events()} == {"truncated_geometric", "sizing"}
    assert release_events(params, charged=True) == plan.events()  # no ρ: the noise is bounded
    for changes in ({"max_contributions": 2, "selection": hg.Threshold()}, {"epsilon": "1/300"}):
        assert hg.ReleaseParams(**{**given, **changes}).resolve(weights=False).noise == "laplace"
    assert hg.ReleaseParams(**{**given, "delta": 0}).resolve().noise == "laplace"
    assert hg.ReleaseParams(**given).resolve(public=True).noise == "laplace"


def test_what_a_sketch_says_of_one_key_per_user() -> None:
    """Intervals of keys hold, totals have no bias."""
    rng = np.random.default_rng(3)
    share = 1 / np.arange(1, 20_001) ** 1.05
    keys = rng.choice(20_000, 60_000, p=share / share.sum())
    truth = np.bincount(keys, minlength=20_000)
    params = hg.ReleaseParams(epsilon="1", delta="1e-9", max_contributions=1)
    sketch = hg.release(np.arange(len(keys)), keys, params, release_key=ReleaseKey(bytes([7]) * 32))
    mean = sketch.plan.noise.law(float(sketch.plan.scale)).mean
    heavy = sketch.heavy(all=True)
    named = np.array(heavy["key"].to_pylist(), int)
    assert len(named) > 100
    assert (
        np.mean((heavy["low"].to_numpy() <= truth[named]) & (truth[named] <= heavy["high"].to_numpy())) == 1
    )
    largest = np.argsort(-truth)[:60]  # all of them are named
    assert set(largest) <= set(named)
    total = sketch.total(largest)
    deviation = (60 * float(sketch.plan.noise.variance(sketch.plan.scale))) ** 0.5
    assert abs(total.estimate - truth[largest].sum()) < 4 * deviation
    assert total.low <= truth[largest].sum() <= total.high
    found = sketch.estimate(np.arange(2_000))
    held = (found["low"].to_numpy() <= truth[:2000]) & (truth[:2000] <= found["high"].to_numpy())
    assert held.mean() > 0.93
    assert abs(mean) <= 0.5
