"""Noisy buckets by exact enumeration on tiny neighbouring inputs, and the distributions that the code draws."""

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import draw_seeds
from hushgram.encodings import integer_code
from hushgram.encodings.buckets import BLOCK, BucketsLayout, classes
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.gaussian import gaussian_delta
from hushgram.sensitivity import Sensitivity
from tests.statistics import fits, gaussian_pmf

KEY = ReleaseKey(bytes(range(32)))
REACH = 60


@cache
def bucket(total, scale, step, reach=REACH):
    """{level: probability} of a bucket with this exact sum: noise, then rounding to the step."""
    out = dict.fromkeys(range(-reach, reach + 1), 0.0)
    for level in out:
        centre = step * level
        out[level] = math.fsum(
            gaussian_pmf(scale, centre + i - total) for i in range(-(step // 2), step // 2 + 1)
        )
    return out


def sums(x, places, size):
    out = [0] * size
    for count, place in zip(x, places, strict=True):
        out[place] += count
    return tuple(out)


def hockey_stick(epsilon, a, b, scale):
    """δ of two vectors of sums under Gaussian noise, over all outputs."""
    lists = [
        (
            list(bucket(p, scale, 1, 40).values()),
            list(bucket(q, scale, 1, 40).values()),
        )
        for p, q in zip(a, b, strict=True)
        if p != q
    ]
    one, other = np.ones(1), np.ones(1)
    for p, q in lists:
        one, other = np.outer(one, p).ravel(), np.outer(other, q).ravel()
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def test_gaussian_delta_holds_apart_and_not_where_a_users_keys_meet():
    """The reason for `KeyClasses`: two keys of one user in one bucket would cost more than is stated for them."""
    scale, epsilon = Fraction(2), Fraction(1, 2)
    stated = float(gaussian_delta((scale,), epsilon, Sensitivity(2, 1)))
    assert hockey_stick(0.5, (3, 4, 0), (4, 5, 0), 2.0) <= stated
    assert hockey_stick(0.5, (3, 4, 0), (3, 5, 1), 2.0) <= stated
    assert hockey_stick(0.5, (3, 0, 0), (5, 0, 0), 2.0) > stated


# --- the code draws these distributions ---------------------------------------------------------------------------


@pytest.mark.fresh_noise(rate=1e-5)
def test_code_draws_the_distribution_on_every_bucket():
    """Empty buckets and full ones alike; noise 30 % off is rejected."""
    layout = BucketsLayout(Fraction(5), 3, 256)
    cells = layout.empty_block(0)
    cells[7] = 40
    drawn = []
    for i in range(400):
        block = layout.release_block(0, cells, ReleaseKey(i.to_bytes(32, "little")))
        levels = layout.levels(0, block.content)
        assert block.sums.tolist() == [levels.sum()]
        drawn.append(levels)
    seen = np.array(drawn)
    empty = np.delete(seen, 7, axis=1)
    assert fits(empty.ravel(), bucket(0, 5.0, 3))
    assert fits(seen[:, 7], bucket(40, 5.0, 3))
    for wrong in (5.0 * 1.3, 5.0 / 1.3):
        assert not fits(empty.ravel(), bucket(0, wrong, 3))
    pairs = np.sign(empty[:, :-1:2]) * 3 + np.sign(empty[:, 1::2])  # neighbours are independent
    zero = bucket(0, 5.0, 3)[0]
    side = {0: zero, 1: (1 - zero) / 2, -1: (1 - zero) / 2}
    assert fits(pairs.ravel(), {3 * a + b: side[a] * side[b] for a in side for b in side})


def histogram(count, seed=3):
    rng = np.random.default_rng(seed)
    prints = np.unique(rng.integers(0, 1 << 64, count, dtype=np.uint64))
    return Histogram(prints, rng.integers(1, 1000, len(prints)))


def test_projection_is_the_exact_sum_and_merges_in_any_order():
    layout = BucketsLayout(Fraction(8), 1, BLOCK + 700)
    seeds = draw_seeds(KEY, 1)
    whole = histogram(30_000)
    expected = np.bincount(layout.positions(whole.fingerprints, seeds), whole.counts, layout.size).astype(int)
    for cuts in ([], [10_000], [5, 6, 29_000]):
        parts = [whole.part(low, high) for low, high in itertools.pairwise([0, *cuts, len(whole)])]
        cells = [layout.empty_block(block) for block in range(layout.blocks)]
        for i, part in reversed(list(enumerate(parts))):
            for block, held in layout.project([(i, part)], seeds, KEY):
                layout.add(cells[block], held)
        assert (np.concatenate(cells) == expected).all()
    assert [len(c) for c in cells] == [BLOCK, 700]


def test_a_lookup_reads_its_blocks_alone():
    layout = BucketsLayout(Fraction(8), 3, 4 * BLOCK)
    seeds = draw_seeds(KEY, 1)
    data = histogram(5000)
    cells = [layout.empty_block(block) for block in range(4)]
    for block, held in layout.project([(0, data)], seeds, KEY):
        layout.add(cells[block], held)
    released = [layout.release_block(i, c, KEY).content for i, c in enumerate(cells)]
    read = []

    def fetch(block):
        read.append(block)
        return released[block]

    one = data.fingerprints[:1]
    (row,) = layout.look_up(one, seeds, fetch)
    assert read == [row[0] // BLOCK]
    assert row[1] == layout.levels(read[0], released[read[0]])[row[0] % BLOCK]
    found = layout.look_up(data.fingerprints, seeds, fetch)
    assert (found[0] == row).all()
    assert layout.look_up(data.fingerprints[:0], seeds, fetch).shape == (0, 2)
    off = found[:, 1] * 3 - np.concatenate(cells)[found[:, 0]]
    assert abs(off.mean()) < 2
    assert np.median(np.abs(off)) < 12


def test_blocks_take_less_than_a_byte_a_bucket():
    layout = BucketsLayout(Fraction(8), 1, BLOCK)
    block = layout.release_block(0, layout.empty_block(0), KEY)
    assert len(block.content) <= 6 * BLOCK / 8
    coarse = BucketsLayout(Fraction(8), 3, BLOCK)
    assert len(coarse.release_block(0, coarse.empty_block(0), KEY).content) <= 4.5 * BLOCK / 8


def test_huge_counts_are_clamped_and_never_fail():
    layout = BucketsLayout(Fraction(2), 1, 64)
    cells = layout.empty_block(0)
    cells[3] = (1 << 62) + 5
    levels = layout.levels(0, layout.release_block(0, cells, KEY).content)
    assert levels[3] == integer_code.LARGEST


def test_classes_are_a_power_of_two_that_follows_from_c():
    assert [classes(c) for c in (1, 2, 8, 100, 1 << 20)] == [128, 256, 1024, 16384, 1 << 27]


def test_blocks_have_noise_of_their_own():
    """Equal blocks, empty ones among them, must not share a stream: their noise would cancel."""
    layout = BucketsLayout(Fraction(5), 1, 3 * BLOCK)
    blocks = [layout.levels(i, layout.release_block(i, layout.empty_block(i), KEY).content) for i in range(3)]
    assert (blocks[0] != blocks[1]).mean() > 0.5
    assert (blocks[1] != blocks[2]).mean() > 0.5
