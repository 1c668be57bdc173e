"""The Laplace histogram: noise on every listed key, of exactly the stated scale; broken twins are seen."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from hushgram import ReleaseParams, release_in_memory, release_public
from hushgram.key_selection.threshold import Heavy
from hushgram.mechanisms import laplace as module
from hushgram.mechanisms.laplace import LaplaceAnswers, LaplaceParams, privacy_map, release_listed
from hushgram.noise.entropy import InteractiveKey, ReleaseKey
from hushgram.noise.laplace import LaplaceNoise
from hushgram.sparse_histogram import steps
from tests.exact_counts import exact_counts
from tests.statistics import fits, laplace_pmf

SECRET = bytes(range(32))
KEY = ReleaseKey(SECRET)
NAMES = [f"k{i}" for i in range(30_000)]


def test_noise_has_the_stated_law_on_present_and_absent_keys():
    counts = np.zeros(len(NAMES), np.int64)
    counts[::2] = 1000
    params = LaplaceParams("0.5", max_contributions=2)
    noise = release_listed(NAMES, exact_counts(counts), params, KEY) - counts
    law = {z: laplace_pmf(4, z) for z in range(-60, 61)}
    assert fits(noise[::2], law)
    assert fits(noise[1::2], law)
    for wrong in (4 * 1.1, 4 / 1.1):  # power: ten percent off is seen
        assert not fits(noise, {z: laplace_pmf(wrong, z) for z in range(-60, 61)})


def scales(monkeypatch, counts, params):
    """What the code adds to what: with the sampler replaced, the release is counts plus known numbers."""
    asked = []

    def fixed(scale, size, source):
        asked.append((scale, size))
        return np.arange(size, dtype=np.int64)

    monkeypatch.setattr(module, "discrete_laplace", fixed)
    released = release_listed(NAMES[: len(counts)], exact_counts(np.array(counts)), params, KEY)
    assert (released == np.array(counts) + np.arange(len(counts))).all()
    return asked


def loss(scale, one, other, absent=True):
    """max |ln P[y | one] / P[y | other]| over outputs y near both; ``absent``: noise also at count 0."""
    worst = 0.0
    for y in itertools.product(range(-4, 9), repeat=len(one)):
        p, q = (
            math.prod(
                laplace_pmf(scale, b - a) if absent or a else float(b == 0) for a, b in zip(x, y, strict=True)
            )
            for x in (one, other)
        )
        if p or q:
            worst = max(worst, abs(math.log(p / q)) if p and q else math.inf)
    return worst


@pytest.mark.parametrize("contributions", [1, 2, 3])
def test_loss_is_epsilon_between_all_neighbours(monkeypatch, contributions):
    params = LaplaceParams("0.7", max_contributions=contributions)
    ((scale, size),) = scales(monkeypatch, [3, 0, 5], params)
    assert (scale, size) == (Fraction(contributions) / Fraction(7, 10), 3)
    worst = 0.0
    for one in itertools.product(range(3), repeat=2):
        for move in itertools.product(range(contributions + 1), repeat=2):
            if sum(move) <= contributions:
                other = [a + b for a, b in zip(one, move, strict=True)]
                worst = max(worst, loss(float(scale), one, other))
    assert worst == pytest.approx(0.7, rel=1e-9)
    assert privacy_map(scale, contributions) == Fraction(7, 10)


@pytest.mark.parametrize("contributions", [1, 2])
@pytest.mark.parametrize("records", [["a", "a", "c"], ["b"], []])
def test_public_keys_have_noise_once_and_of_one_scale_in_all_shards(monkeypatch, contributions, records):
    """By exact numbers instead of noise: the vector of all shards is that whose loss is enumerated above."""
    asked = []

    def fixed(self, scale, size, source):
        asked.append((scale, size))
        return np.full(size, 100, np.int64)

    monkeypatch.setattr(LaplaceNoise, "sample", fixed)
    listed = ["a", "b", "c", "d", "e"]
    params = ReleaseParams(epsilon="0.7", max_contributions=contributions)
    users = [f"user {i}" for i in range(len(records))]
    found = release_public(users, records, listed, params, release_key=KEY).heavy(all=True).to_pylist()
    assert {row["key"]: row["value"] - 100 for row in found} == {key: records.count(key) for key in listed}
    assert {scale for scale, _ in asked} == {Fraction(contributions) / Fraction(7, 10)}
    assert sum(size for _, size in asked) == len(listed)


def test_broken_twin_shards_without_records_have_no_noise(monkeypatch):
    """Then the key of an empty shard shows whether one user has it: the loss is that of no noise at count 0."""
    counted = steps.count_listed

    def broken(shard, part, listed, *more):
        found = counted(shard, part, listed, *more)
        return found if len(part) else Heavy(found.fingerprints, 0 * found.values, found.texts)

    params, listed = ReleaseParams(epsilon="0.7", max_contributions=1), [f"k{i}" for i in range(40)]

    def noisy():
        found = release_public(["user"], ["k3"], listed, params, release_key=KEY).heavy(all=True)
        return int((found["value"].to_numpy() != 0).sum())

    assert noisy() > 20
    monkeypatch.setattr(release_in_memory, "count_listed", broken)
    assert noisy() <= 2
    assert loss(1 / 0.7, (0, 1), (1, 1), absent=False) == math.inf


def test_broken_twin_no_noise_on_absent_keys():
    assert loss(2.0, (0, 1), (1, 1), absent=False) == math.inf


def test_broken_twin_scale_of_one_contribution_for_three():
    scale = float(LaplaceParams("0.7", max_contributions=1).scale)
    assert loss(scale, (0, 0), (3, 0)) > 0.7 * 2


def test_a_stream_splits_epsilon_over_its_queries():
    answers = LaplaceAnswers(1, 8, 3, InteractiveKey(SECRET))
    assert privacy_map(answers.scale, 3) * 8 == 1
    noise = LaplaceAnswers(1, 20_000, 1, InteractiveKey(SECRET)).answer(np.zeros(20_000, np.int64), b"zeros")
    scale = 20_000.0
    edges = [-np.inf, *(scale * t for t in (-3, -2, -1, -0.5, 0.5, 1, 2, 3)), np.inf]
    cells = np.digitize(noise, edges[1:-1])
    law = {i: below(edges[i + 1] / scale) - below(edges[i] / scale) for i in range(len(edges) - 1)}
    assert fits(cells, law)
    assert not fits(np.digitize(noise * 1.1, edges[1:-1]), law)


def below(t):
    """Distribution function of the continuous Laplace law of scale 1; the grid is fine enough here."""
    return math.exp(t) / 2 if t < 0 else 1 - math.exp(-t) / 2


def test_composition_with_delta_is_tighter_and_sound():
    from hushgram.accounting.composition import composed_delta

    answers = LaplaceAnswers(1, 400, 1, InteractiveKey(SECRET), delta="1e-6")
    each = 1 / answers.scale
    assert each > Fraction(1, 400)
    assert composed_delta(each, 400, Fraction(1)) <= Fraction(1, 10**6)
    assert composed_delta(each * Fraction(11, 10), 400, Fraction(1)) > Fraction(1, 10**6)  # broken twin
