"""ALP by exact enumeration: the probability of every output on small inputs, as fractions, for all neighbours.

`outputs` computes the distribution of the released bits from first principles (random rounding, OR of hashed bits,
independent flips) with the width, levels and flip probability that hushgram chooses;
`test_code_draws_this_distribution` ties the code to it.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from hushgram.accounting.composition import composed_delta
from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import column_positions
from hushgram.encodings import alp
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey
from tests.statistics import fits

ALPHA = Fraction(3)


def rounded(x, width, bound, levels):
    """{y: probability} of RandRound(min(x, bound)/width)."""
    exact = Fraction(min(x, bound)) / width
    floor = exact.numerator // exact.denominator
    up = exact - floor
    out = {min(floor, levels): 1 - up}
    if up:
        out[min(floor + 1, levels)] = out.get(min(floor + 1, levels), Fraction(0)) + up
    return out


def outputs(x, places, sizes, width, bound, flip, touched_only=False):
    """{released bits: probability}, where places[i][b] is the bit that key i sets in column b."""
    levels = len(sizes)
    starts = np.cumsum([0, *sizes])
    before = Counter()
    for ys in itertools.product(*(rounded(count, width, bound, levels).items() for count in x)):
        p = Fraction(1)
        bits = 0
        for key, (y, share) in enumerate(ys):
            p *= share
            for b in range(y):
                bits |= 1 << int(starts[b] + places[key][b])
        before[bits] += p
    total = int(starts[-1])
    after = Counter()
    for bits, p in before.items():
        for out in range(1 << total):
            weight = p
            for i in range(total):
                if touched_only and not bits >> i & 1:
                    weight *= int(out >> i & 1 == 0)
                    continue
                weight *= flip if (bits ^ out) >> i & 1 else 1 - flip
            after[out] += weight
    return after


def worst_ratio(a, b):
    """The largest P(o)/P'(o) over outputs, infinity where P' is 0."""
    ratios = [p / b[o] if b[o] else Fraction(10**9) for o, p in a.items() if p]
    return max(ratios)


# Two keys in two columns: apart, colliding in one column, colliding in both; taper: columns of different size.
LAYOUTS = {
    "apart": ([(0, 0), (1, 1)], (2, 2)),
    "one-collision": ([(0, 0), (0, 1)], (2, 2)),
    "collide": ([(0, 0), (0, 0)], (1, 1)),
    "taper": ([(0, 0), (2, 0)], (3, 1)),
}
WIDTHS = [Fraction(1), Fraction(3, 2), Fraction(5, 2), Fraction(7, 3)]


def losses(layout, width, flip, reach, **kw):
    """Worst ratio over all x in [0, reach]², and one unit added to either key."""
    places, sizes = LAYOUTS[layout]
    bound = -(-2 * width.numerator // width.denominator)
    table = {
        x: outputs(x, places, sizes, width, bound, flip, **kw)
        for x in itertools.product(range(reach + 1), repeat=2)
    }
    for x, a in table.items():
        for key in (0, 1):
            other = tuple(c + (i == key) for i, c in enumerate(x))
            if other in table:
                yield max(worst_ratio(a, table[other]), worst_ratio(table[other], a))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", WIDTHS)
def test_one_unit_costs_at_most_the_stated_factor(layout, width):
    stated = 1 + ALPHA / width
    worst = max(losses(layout, width, alp.flip_probability(ALPHA), 4))
    assert worst <= stated
    if layout == "apart":  # and nothing is wasted: the bound is reached
        assert worst == stated


@pytest.mark.parametrize(("epsilon", "most"), [("1/2", 1), ("1/2", 2), ("1", 1), ("1", 3), ("3", 2)])
def test_a_whole_user_costs_at_most_epsilon(epsilon, most):
    """C units spread in any way between the keys, with the width that hushgram chooses."""
    epsilon = Fraction(epsilon)
    width = alp.exact_width(epsilon, ALPHA, most)
    assert alp.privacy_map(width, ALPHA, most) <= epsilon
    allowed = Fraction(np.exp(float(epsilon)).item()) * (1 + Fraction(1, 10**9))
    places, sizes = LAYOUTS["apart"]
    bound, reach = int(2 * width) + 1, int(width) + most + 2
    starts = [(0, 0), (int(width), 0), (max(int(width) - 1, 0), int(width)), (reach - most, 1)]
    tight = Fraction(0)
    for x in starts:
        base = outputs(x, places, sizes, width, bound, alp.flip_probability(ALPHA))
        for first in range(most + 1):
            moved = outputs(
                (x[0] + first, x[1] + most - first), places, sizes, width, bound, alp.flip_probability(ALPHA)
            )
            worst = max(worst_ratio(base, moved), worst_ratio(moved, base))
            assert worst <= allowed
            tight = max(tight, worst)
    if most == 1 and width > 1:
        assert float(tight) > float(allowed) * (
            1 - 1e-5
        )  # the width on its 2^-20 grid wastes next to nothing


def test_the_width_is_the_smallest_on_its_grid():
    for epsilon, most in ((Fraction(1, 2), 1), (Fraction(49, 100), 8), (Fraction(1, 100), 64)):
        width = alp.exact_width(epsilon, ALPHA, most)
        assert alp.privacy_map(width - Fraction(1, 1 << 20), ALPHA, most) > epsilon
        assert width <= alp.paper_width(epsilon, ALPHA, most)
        assert alp.privacy_map(alp.paper_width(epsilon, ALPHA, most), ALPHA, most) <= epsilon


def test_large_epsilon_keeps_a_width_of_one():
    assert alp.exact_width(Fraction(50), ALPHA, 1) == 1
    with pytest.raises(ParameterError, match="at least 1"):
        alp.privacy_map(Fraction(1, 2), ALPHA, 1)


class TestBrokenTwins:
    """The same enumeration rejects what is known to be wrong."""

    def test_flip_probability_one_level_off(self):
        assert max(losses("apart", Fraction(5, 2), 1 / (ALPHA + 3), 4)) > 1 + ALPHA / Fraction(5, 2)

    def test_epsilon_not_divided_by_contributions(self):
        width = alp.exact_width(Fraction(1), ALPHA, 1)  # should have been for most = 3
        places, sizes = LAYOUTS["apart"]
        flip = alp.flip_probability(ALPHA)
        a = outputs((0, 0), places, sizes, width, 5, flip)
        b = outputs((2, 1), places, sizes, width, 5, flip)
        assert max(worst_ratio(a, b), worst_ratio(b, a)) > Fraction(np.e)

    def test_untouched_bits_left_out(self):
        worst = max(losses("apart", Fraction(5, 2), alp.flip_probability(ALPHA), 3, touched_only=True))
        assert worst > 100

    def test_width_below_one_is_not_covered_by_the_formula(self):
        width = Fraction(1, 2)
        assert max(losses("apart", width, alp.flip_probability(ALPHA), 2)) > 1 + ALPHA / width


def draw(counts, sizes, seeds, width, bound, index):
    part = Histogram(np.array([11, 12], np.uint64), np.array(counts, np.int64))
    held = Histogram(part.fingerprints[part.counts > 0], part.counts[part.counts > 0])
    key = ReleaseKey(index.to_bytes(32, "little"))
    layout = alp.AlpLayout(ALPHA, bound, width, sizes)
    parts = dict(layout.project([(0, held)], seeds, key))
    out = b""
    for block in range(layout.blocks):
        cells = layout.empty_block(block)
        if block in parts:
            layout.add(cells, parts[block])
        out += layout.release_block(block, cells, key).content.tobytes()
    return out


@pytest.mark.parametrize("counts", [(0, 0), (3, 1), (2, 9)])
@pytest.mark.fresh_noise(rate=1e-5)
def test_code_draws_this_distribution(counts):
    """Rounding, hashing, OR and flips of the real code on columns of 8 bits; the bits of both keys are looked at."""
    width, bound, sizes = Fraction(5, 2), 5, (8, 8)
    seeds = np.arange(1, 7, dtype=np.uint64).reshape(2, 3) * np.uint64(0x9E3779B97F4A7C15)
    places = [
        [int(column_positions(np.array([f], np.uint64), seeds[b], 8)[0]) for b in range(2)] for f in (11, 12)
    ]
    used = sorted({(b, place[b]) for place in places for b in range(2)})
    draws = []
    for index in range(3_000):
        bits = draw(counts, sizes, seeds, width, bound, index)
        draws.append(sum((bits[b] >> at & 1) << i for i, (b, at) in enumerate(used)))
    names = {bit: i for i, bit in enumerate(used)}
    columns = [[names[(b, place[b])] for b in range(2)] for place in places]
    # as one wide column a level, numbered over the bits looked at
    size = len(used)
    expected = outputs_flat(counts, columns, size, width, bound)
    assert fits(draws, {o: float(p) for o, p in expected.items()})
    wrong = outputs_flat(counts, columns, size, width, bound, flip=Fraction(1, 5) * Fraction(3, 2))
    assert not fits(draws, {o: float(p) for o, p in wrong.items()})


def outputs_flat(x, columns, size, width, bound, flip=None):
    """As `outputs`, with bits numbered over both columns together."""
    flip = flip or alp.flip_probability(ALPHA)
    before = Counter()
    for ys in itertools.product(*(rounded(count, width, bound, 2).items() for count in x)):
        bits, p = 0, Fraction(1)
        for key, (y, share) in enumerate(ys):
            p *= share
            for b in range(y):
                bits |= 1 << columns[key][b]
        before[bits] += p
    after = Counter()
    for bits, p in before.items():
        for out in range(1 << size):
            ones = (bits ^ out).bit_count()
            after[out] += p * flip**ones * (1 - flip) ** (size - ones)
    return after


def test_every_block_is_noised_even_when_empty():
    layout = alp.AlpLayout(ALPHA, 5, Fraction(5, 2), (128, 64))
    for block in range(layout.blocks):
        released = layout.release_block(block, layout.empty_block(block), ReleaseKey(bytes(32)))
        assert released.content.any()
        assert released.sums.sum() == np.bitwise_count(released.content).sum()


def test_blocks_cover_all_columns_once():
    sizes = (64, 3 * alp.BLOCK_BITS + 64, alp.BLOCK_BITS)
    layout = alp.AlpLayout(ALPHA, 5, Fraction(5, 2), sizes)
    places = [layout._column_of(block) for block in range(layout.blocks)]
    assert (layout.block_lengths() * 8).tolist() == [bits for _, _, bits in places]
    for column, size in enumerate(sizes):
        mine = [(start, bits) for at, start, bits in places if at == column]
        assert sum(bits for _, bits in mine) == size
        assert [start for start, _ in mine] == list(range(0, size, alp.BLOCK_BITS))


def test_parts_of_a_block_merge_in_any_order():
    layout = alp.AlpLayout(ALPHA, 5, Fraction(5, 2), (256,))
    parts = [np.array(offsets, np.uint32) for offsets in ([3, 200], [], [200, 7, 3])]
    held = []
    for order in (parts, parts[::-1]):
        cells = layout.empty_block(0)
        for part in order:
            layout.add(cells, (part,))
        held.append(layout.release_block(0, cells, ReleaseKey(bytes(32))).content.tolist())
        assert np.flatnonzero(cells).tolist() == [3, 7, 200]
    assert held[0] == held[1]


@pytest.mark.parametrize("blocks", [1, 3])
def test_what_is_looked_up_is_what_was_set(blocks, monkeypatch):
    """Without flips a key of level y shows its first y bits: projection and lookup agree on every place."""
    monkeypatch.setattr(alp, "BLOCK_BITS", 1024 // blocks // 64 * 64)
    monkeypatch.setattr(alp.AlpLayout, "flip", Fraction(1, 1 << 60))
    layout = alp.AlpLayout(ALPHA, 3, Fraction(1), (1024, 512, 64))
    keys = Histogram(np.arange(40, dtype=np.uint64) << np.uint64(50), np.arange(40) % 4)
    seeds = np.arange(1, 10, dtype=np.uint64).reshape(3, 3) * np.uint64(0x9E3779B97F4A7C15)
    parts = dict(layout.project([(0, keys)], seeds, ReleaseKey(bytes(32))))
    content = []
    for block in range(layout.blocks):
        cells = layout.empty_block(block)
        if block in parts:
            layout.add(cells, parts[block])
        content.append(layout.release_block(block, cells, ReleaseKey(bytes(32))).content)
    found = layout.look_up(keys.fingerprints, seeds, content.__getitem__)
    assert all(found[i, :count].all() for i, count in enumerate(keys.counts))
    assert not found.all()


def test_losses_of_one_user_do_not_compose_where_keys_meet():
    """Why ALP stays pure at δ > 0: keys of a user that share a bit exceed as many runs of a pure mechanism."""
    alpha, width, keys = 3, 100, 3
    p, share = 1 / (alpha + 2), 1 / width
    run = math.log(1 + alpha * share)
    with_user = p + (1 - 2 * p) * (1 - (1 - share) ** keys)
    divergence = with_user - math.exp(2 * run) * p
    assert divergence > 1.4 * float(composed_delta(Fraction(run), keys, Fraction(2 * run)))
