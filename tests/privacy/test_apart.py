"""Where noise depends on L2, no two keys of a user share a class: hashed sums move by the user's own parts."""

import itertools
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from hushgram.contributions.bounding import Bounds, Contributions, KeyClasses
from hushgram.contributions.keys import column_positions, draw_seeds
from hushgram.contributions.sums import Grid
from hushgram.encodings.buckets import classes
from hushgram.noise.entropy import ReleaseKey
from hushgram.sensitivity import Sensitivity

KEY = ReleaseKey(bytes(range(32)))


def rows(users, keys, *, texts=False):
    return Contributions.of(users, keys, KEY, texts=texts)


def key_classes(count):
    return KeyClasses(draw_seeds(KEY, 1)[0], count)


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize(("most", "most_per_key"), [(5, 1), (8, 3), (40, 2)])
def test_hashed_sums_of_one_user_have_the_stated_l2(texts, most, most_per_key):
    rng = np.random.default_rng(1)
    one = np.zeros(3000, np.int64)
    keys = rng.integers(0, 200, 3000)
    held = rows(one, keys, texts=texts).bounded(Bounds(most, most_per_key, key_classes(16)))
    assert held.counts.sum() <= most
    for size in (16, 32, 16 * 5):  # any multiple of the classes
        places = column_positions(held.fingerprints, draw_seeds(KEY, 1)[0], size)
        sums = np.bincount(places.astype(np.int64), held.counts)
        assert (sums**2).sum() <= Sensitivity(most, most_per_key).l2_squared
        assert len(np.unique(places)) == len(places)


def test_without_classes_a_user_could_exceed_it():
    """The broken twin: the same keys, not kept apart, meet in buckets and move them by more than √C."""
    keys = np.arange(200)
    held = rows(np.zeros(200, np.int64), keys).bounded(Bounds(40, 1))
    places = column_positions(held.fingerprints, draw_seeds(KEY, 1)[0], 16)
    sums = np.bincount(places.astype(np.int64), held.counts)
    assert (sums**2).sum() > Sensitivity(40, 1).l2_squared


def test_parts_may_be_cut_and_merged_in_any_way():
    rng = np.random.default_rng(2)
    users, keys = rng.integers(0, 30, 4000), rng.integers(0, 300, 4000)
    whole = rows(users, keys).bounded(Bounds(7, 2, key_classes(32)))
    for pieces, seed in itertools.product((2, 5, 13), range(3)):
        cut = np.random.default_rng(seed).integers(0, pieces, 4000)
        parts = [
            rows(users[cut == i], keys[cut == i]).prune(Bounds(7, 2, key_classes(32))) for i in range(pieces)
        ]
        merged = (
            Contributions.concat(parts)
            .prune_if_many(Bounds(7, 2, key_classes(32)))
            .bounded(Bounds(7, 2, key_classes(32)))
        )
        assert (merged.fingerprints == whole.fingerprints).all()
        assert (merged.counts == whole.counts).all()


def test_a_user_loses_few_keys_by_it():
    lost = []
    for most in (8, 64):
        keys = np.arange(most * 400)
        users = np.repeat(np.arange(400), most)
        kept = rows(users, keys).bounded(Bounds(most, 1, key_classes(classes(most)))).counts.sum()
        lost.append(1 - kept / len(keys))
    assert max(lost) < 1 / 200


def test_one_class_keeps_one_key():
    held = rows(np.zeros(50, np.int64), np.arange(50)).bounded(Bounds(8, 8, key_classes(1)))
    assert len(held) == 1


@pytest.mark.parametrize("values", [False, True])
def test_keys_that_count_differently_may_be_cut_in_any_way(values):
    """A key of a class may count less than a later one of that class, which stands in another part.

    Where a part dropped rows by what the later one counts, the cut decided what a user adds, and with it the records of
    other users.
    """
    rng = np.random.default_rng(3)
    users = rng.integers(0, 400, 3200)
    keys = 8 * users + rng.integers(0, 8, 3200)
    numbers, grid = pa.array(rng.integers(0, 9, 3200) / 4), Grid(Fraction(1), 2)
    bounds = Bounds(3, 2, key_classes(3), weighted=values)

    def some(mask):
        given = [(numbers.filter(pa.array(mask)), grid)] if values else [None]
        return Contributions.of(users[mask], keys[mask], KEY, texts=False, values=given)

    whole = some(np.ones(3200, np.bool_)).bounded(bounds)
    for pieces in (2, 3, 8):
        cut = rng.integers(0, pieces, 3200)
        parts = [some(cut == i).prune(bounds) for i in range(pieces)]
        merged = Contributions.concat([Contributions.concat(parts[:-1]).prune(bounds), parts[-1]]).bounded(
            bounds
        )
        assert merged.fingerprints.tolist() == whole.fingerprints.tolist()
        assert merged.counts.tolist() == whole.counts.tolist()
