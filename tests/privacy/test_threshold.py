"""The threshold release, pure and approximate, by exact enumeration on tiny neighbouring inputs."""

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from hushgram.contributions.histogram import NOISE_SHARDS, Histogram
from hushgram.key_selection import threshold
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.laplace import NOISE
from hushgram.sensitivity import Sensitivity
from tests.statistics import fits, laplace_pmf, laplace_tail


@cache
def cell(x, bound, scale, reach=200):
    """{None or v: probability} of one cell of the domain with count x."""
    out = {v: laplace_pmf(scale, v - x) for v in range(bound, bound + reach)}
    out[None] = 1 - laplace_tail(scale, bound - x)
    return out


def pure_loss(a, b, bound, scale):
    """Largest log-ratio over outputs, for two histograms over the same cells: cells are independent, so losses add."""
    total = 0.0
    for x, y in zip(a, b, strict=True):
        p, q = cell(x, bound, scale), cell(y, bound, scale)
        total += max(math.log(p[o] / q[o]) for o in p)
    return total


def neighbours(x, most, most_per_key):
    """All histograms reached by adding at most ``most`` units, at most ``most_per_key`` to a cell."""
    for added in itertools.product(range(most_per_key + 1), repeat=len(x)):
        if sum(added) <= most:
            yield tuple(c + a for c, a in zip(x, added, strict=True))


@pytest.mark.parametrize(
    ("epsilon", "most", "most_per_key"), [("1/2", 1, 1), ("1", 2, 1), ("1", 3, 3), ("2", 3, 2)]
)
def test_pure_loss_is_at_most_epsilon(epsilon, most, most_per_key):
    epsilon = Fraction(epsilon)
    (scale,) = NOISE.scales((epsilon,), Fraction(0), Sensitivity(most, 1))
    bounds = Sensitivity(most, most_per_key)
    assert NOISE.privacy_map((scale,), epsilon, bounds) == 0
    assert NOISE.privacy_map((scale * 99 / 100,), epsilon, bounds) == 1
    bound = threshold.pure_threshold(8, Fraction(1), NOISE, scale)
    worst = 0.0
    for x in itertools.product((0, bound - 1, bound), repeat=3):
        for y in neighbours(x, most, most_per_key):
            worst = max(worst, pure_loss(x, y, bound, float(scale)), pure_loss(y, x, bound, float(scale)))
    assert worst <= float(epsilon) + 1e-9
    assert worst >= float(epsilon) - 1e-6  # reached: nothing is wasted


def test_pure_loss_rejects_broken_twins():
    epsilon, most = Fraction(1), 3
    (right,) = NOISE.scales((epsilon,), Fraction(0), Sensitivity(most, 1))
    bound = threshold.pure_threshold(8, Fraction(1), NOISE, right)
    not_divided = 1 / epsilon
    x = (bound, bound, bound)
    assert pure_loss((bound + 1,) * 3, x, bound, float(not_divided)) > float(epsilon) * 1.5
    # zeros without noise: an absent key is never listed, a present one may be
    p, q = cell(1, bound, float(right)), {None: 1.0}
    assert any(o not in q for o in p)


@pytest.mark.parametrize(("bits", "false"), [(8, "1"), (20, "3.5"), (64, "1"), (32, "6681.66")])
def test_pure_threshold_is_the_smallest(bits, false):
    scale = Fraction(2)
    bound = threshold.pure_threshold(bits, Fraction(false), NOISE, scale)
    assert 2.0**bits * laplace_tail(2.0, bound) <= float(Fraction(false)) * (1 + 1e-12)
    assert bound == 1 or 2.0**bits * laplace_tail(2.0, bound - 1) > float(Fraction(false))


# --- δ > 0 ------------------------------------------------------------------------------------------------------


def partitions(most, largest):
    """All multisets of parts from 1 to ``largest`` with sum at most ``most``."""
    if largest == 0 or most == 0:
        yield ()
        return
    for times in range(most // largest + 1):
        for rest in partitions(most - times * largest, largest - 1):
            yield (largest,) * times + rest


def delta_by_enumeration(bound, scale, most, most_per_key, strict=False):
    """The largest probability that a key which one user alone holds passes, over all ways to split."""
    worst = 0.0
    for parts in partitions(most, most_per_key):
        none = math.prod(1 - laplace_tail(scale, bound - c + strict) for c in parts)
        worst = max(worst, 1 - none)
    return worst


CASES = [(1, 1), (4, 1), (8, 1), (8, 8), (5, 2), (7, 3), (8, 5), (9, 4), (6, 6), (10, 3)]


@pytest.mark.parametrize(("most", "most_per_key"), CASES)
@pytest.mark.parametrize("epsilon", ["1/4", "1", "4"])
def test_delta_is_the_worst_split(most, most_per_key, epsilon):
    (scale,) = NOISE.scales((Fraction(epsilon),), Fraction(0), Sensitivity(most, 1))
    for bound in (1, 2, 3, most, most + 1, most + 5, most + 20):
        stated = float(threshold.privacy_map(bound, NOISE, scale, Sensitivity(most, most_per_key)))
        assert stated == pytest.approx(
            delta_by_enumeration(bound, float(scale), most, most_per_key), rel=1e-9, abs=1e-14
        )


@pytest.mark.parametrize(("most", "most_per_key"), CASES)
def test_text_threshold_is_the_smallest(most, most_per_key):
    delta = Fraction(1, 1000)
    (scale,) = NOISE.scales((Fraction(1),), Fraction(0), Sensitivity(most, 1))
    bound = threshold.text_threshold(delta, NOISE, scale, Sensitivity(most, most_per_key))
    assert delta_by_enumeration(bound, float(scale), most, most_per_key) <= float(delta) * (1 + 1e-9)
    assert delta_by_enumeration(bound - 1, float(scale), most, most_per_key) > float(delta)


def test_delta_rejects_broken_twins():
    scale, most, most_per_key, delta = 8.0, 8, 8, 1e-3
    bound = threshold.text_threshold(Fraction(1, 1000), NOISE, Fraction(8), Sensitivity(most, most_per_key))
    # > where the code keeps ≥: the bound would be one too low
    off = bound - 1
    assert delta_by_enumeration(off, scale, most, most_per_key, strict=True) <= delta
    assert delta_by_enumeration(off, scale, most, most_per_key) > delta
    # one key of 8 alone, forgetting that eight keys of 1 can be worse
    one_key = next(t for t in range(1, 1000) if laplace_tail(scale, t - 1) <= delta)
    assert delta_by_enumeration(one_key, scale, most, 1) > delta


@pytest.mark.parametrize(("mine", "theirs"), [((1,), (3,)), ((2, 1), (0,)), ((1, 1), (5, 0)), ((3,), (40,))])
def test_epsilon_and_delta_together(mine, theirs):
    """Hockey-stick divergence of the whole output: keys of the user alone, and keys shared with others."""
    epsilon, most, most_per_key = Fraction(1), 3, 3
    (scale,) = NOISE.scales((epsilon,), Fraction(0), Sensitivity(most, 1))
    delta = Fraction(1, 100)
    bound = threshold.text_threshold(delta, NOISE, scale, Sensitivity(most, most_per_key))
    shared_added = most - sum(mine)
    with_user = [cell(c, bound, float(scale), 60) for c in mine]
    without_user = [{None: 1.0} for _ in mine]
    for c in theirs:
        if c:
            with_user.append(cell(c + shared_added, bound, float(scale), 60))
            without_user.append(cell(c, bound, float(scale), 60))
            shared_added = 0
    for p, q in ((with_user, without_user), (without_user, with_user)):
        divergence = 0.0
        for outcome in itertools.product(*(set(a) | set(b) for a, b in zip(p, q, strict=True))):
            weight = [math.prod(side[i].get(o, 0.0) for i, o in enumerate(outcome)) for side in (p, q)]
            divergence += max(weight[0] - math.e * weight[1], 0.0)
        assert divergence <= float(delta) + 1e-9


# --- the code draws these distributions --------------------------------------------------------------------------


@pytest.mark.fresh_noise(rate=1e-5)
def test_code_draws_the_pure_distribution():
    """A shard of four cells, one of them occupied: which cells are listed, and with what values."""
    scale, bound, bits = Fraction(3), 3, 10
    assert (1 << bits) // NOISE_SHARDS == 4
    part = Histogram(np.array([4 * 7 + 2], np.uint64), np.array([2], np.int64))
    draws = []
    for i in range(4_000):
        key = ReleaseKey(i.to_bytes(32, "little"))
        heavy, _ = threshold.release_shard(
            7, part, threshold=bound, noise=NOISE, scale=scale, domain_bits=bits, release_key=key
        )
        assert (heavy.values >= bound).all()
        assert (np.diff(heavy.fingerprints.astype(np.int64)) > 0).all()
        draws.append({int(f) - 28: int(v) for f, v in zip(heavy.fingerprints, heavy.values, strict=True)})
    for place, x in ((0, 0), (1, 0), (2, 2), (3, 0)):
        seen = [d.get(place, 0) for d in draws]
        expected = {(0 if v is None else v): p for v, p in cell(x, bound, 3.0).items()}
        assert fits(seen, expected)
        wrong = {(0 if v is None else v): p for v, p in cell(x, bound, 3.9).items()}
        assert not fits(seen, wrong)
    both = [(0 in d) + 2 * (3 in d) for d in draws]  # zeros are independent of one another
    p = laplace_tail(3.0, bound)
    assert fits(both, {0: (1 - p) ** 2, 1: p * (1 - p), 2: p * (1 - p), 3: p * p})


def test_an_empty_shard_is_released_too():
    listed = [
        len(
            threshold.release_shard(
                0,
                Histogram.empty(texts=False),
                threshold=2,
                noise=NOISE,
                scale=Fraction(3),
                domain_bits=10,
                release_key=ReleaseKey(i.to_bytes(32, "big")),
            )[0]
        )
        for i in range(200)
    ]
    assert sum(listed) > 0


@pytest.mark.fresh_noise(rate=1e-5)
def test_code_draws_the_text_distribution():
    scale, bound = Fraction(3), 4
    part = Histogram(
        np.array([5, 9], np.uint64), np.array([3, 6], np.int64), pa.array([b"a", b"b"], pa.large_binary())
    )
    draws = {b"a": [], b"b": []}
    for i in range(4_000):
        heavy, _ = threshold.release_shard(
            0,
            part,
            threshold=bound,
            noise=NOISE,
            scale=scale,
            domain_bits=None,
            release_key=ReleaseKey(i.to_bytes(32, "little")),
        )
        found = dict(zip(heavy.texts.to_pylist(), heavy.values.tolist(), strict=True))
        for text, seen in draws.items():
            seen.append(found.get(text, 0))
    for text, x in ((b"a", 3), (b"b", 6)):
        assert fits(draws[text], {(0 if v is None else v): p for v, p in cell(x, bound, 3.0).items()})


def test_absent_texts_are_never_released():
    heavy, _ = threshold.release_shard(
        0,
        Histogram.empty(texts=True),
        threshold=1,
        noise=NOISE,
        scale=Fraction(50),
        domain_bits=None,
        release_key=ReleaseKey(bytes(32)),
    )
    assert len(heavy) == 0
