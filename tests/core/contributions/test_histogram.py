"""Bounding and the histogram: the bound holds for every user, and the result does not depend on how data are cut."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgram.contributions import bounding, histogram
from hushgram.contributions.bounding import NAMED_SHARE, Bounds, Contributions, KeyClasses
from hushgram.contributions.histogram import NOISE_SHARDS, Histogram, KeyTable, stable_order
from hushgram.contributions.keys import draw_seeds, hash_bytes
from hushgram.errors import InputError
from hushgram.noise.entropy import ReleaseKey

KEY = ReleaseKey(bytes(range(32)))
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=60)


def bounded(rows, most, per_key, texts=False, evenly=False):
    users, keys = [u for u, _ in rows], [f"k{k}" for _, k in rows]
    return Contributions.of(
        pa.array(users, pa.int64()), pa.array(keys, pa.string()), KEY, texts=texts
    ).bounded(Bounds(most, per_key, evenly=evenly))


def as_dict(h):
    names = h.fingerprints.tolist() if h.texts is None else h.texts.to_pylist()
    return dict(zip(names, h.counts.tolist(), strict=True))


@given(ROWS, st.integers(1, 6), st.integers(1, 6), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_removing_a_user_moves_at_most_the_bound(rows, most, per_key, texts, evenly):
    per_key = min(per_key, most)
    whole = as_dict(bounded(rows, most, per_key, texts, evenly))
    for user in {u for u, _ in rows}:
        rest = as_dict(bounded([r for r in rows if r[0] != user], most, per_key, texts, evenly))
        moved = [whole.get(k, 0) - rest.get(k, 0) for k in set(whole) | set(rest)]
        assert all(0 <= m <= per_key for m in moved)
        mine = [k for u, k in rows if u == user]
        possible = sum(min(mine.count(k), per_key) for k in set(mine))
        kept = sum(moved)
        # the bound is used up, except where the C keys of lowest priority hold less than C
        assert kept <= min(most, possible)
        if evenly or len(set(mine)) <= most:
            assert kept == min(most, possible)


def apart(rows, bounds, named):
    """Both halves of what users add: of the keys that are named, and of all others."""
    users, keys = [u for u, _ in rows], [f"k{k}" for _, k in rows]
    found = Contributions.of(pa.array(users, pa.int64()), pa.array(keys, pa.string()), KEY, texts=True)
    marked = np.array([int(text[1:]) in named for text in found.table.texts.to_pylist()], bool)
    return tuple(as_dict(half) for half in found.bounded_apart(bounds, marked))


@given(
    ROWS, st.integers(1, 9), st.integers(1, 6), st.sets(st.integers(0, 7)), st.sampled_from([None, 1, 3, 64])
)
@settings(max_examples=150, deadline=None)
def test_named_and_other_keys_are_bounded_as_one_vector(rows, most, per_key, named, classes):
    """A user is in both halves with at most C together, L∞ per key, and one of the other keys per class."""
    key_classes = None if classes is None else KeyClasses(draw_seeds(KEY, 1)[0], classes)
    per_key = min(per_key, most)
    bounds = Bounds(most, per_key, key_classes)
    whole = apart(rows, bounds, named)
    assert all((int(key[1:]) in named) == (half == 0) for half in (0, 1) for key in whole[half])
    for user in {u for u, _ in rows}:
        rest = apart([r for r in rows if r[0] != user], bounds, named)
        own, other = (
            {k: n for k in whole[half] if (n := whole[half][k] - rest[half].get(k, 0))} for half in (0, 1)
        )
        assert all(0 < n <= per_key for n in (*own.values(), *other.values()))
        mine = [k for u, k in rows if u == user]
        possible = {k: min(mine.count(k), per_key) for k in set(mine)}
        of_named = sum(n for k, n in possible.items() if k in named)
        assert sum(own.values()) + sum(other.values()) <= most
        assert sum(own.values()) >= min(of_named, max(int(most * NAMED_SHARE), per_key))
        if key_classes is None:
            assert sum(own.values()) + sum(other.values()) == min(most, sum(possible.values()))
        else:
            places = key_classes.of(hash_bytes(pa.array(list(other), pa.large_binary())))
            assert len(set(places.tolist())) == len(other)


def test_every_record_of_a_user_has_the_same_chance():
    """20,000 users with nine records of one key and one of another: C of the ten count, each as often as the others.

    With the seed fixed these are numbers; over seeds each would fail once in 15,000.
    """
    rows = [(user, key) for user in range(20_000) for key in (1, 1, 1, 1, 1, 1, 1, 1, 1, 2)]
    for most in (1, 3, 10):
        bounds = Bounds.of_records(most)
        assert (bounds.sensitivity.l1, bounds.sensitivity.max_per_key) == (most, most)
        users, keys = (pa.array(list(column)) for column in zip(*rows, strict=True))
        kept = Contributions.of(users, keys, KEY, texts=True).bounded(bounds)
        often, once = (as_dict(kept)[key] for key in (b"1", b"2"))
        assert often + once == 20_000 * most
        assert abs(once - 2000 * most) <= 4 * (20_000 * most / 10 * (1 - most / 10)) ** 0.5
    # up to L∞ of a key: two records of one and one of the other are equally likely
    capped = Contributions.of(users, keys, KEY, texts=True).bounded(Bounds(2, 2, evenly=True))
    assert abs(as_dict(capped)[b"2"] - 20_000 * 2 / 3) <= 4 * (20_000 * 2 / 9) ** 0.5


@given(
    ROWS,
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
    st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None)
def test_any_cutting_and_merging_gives_the_same_histogram(rows, most, per_key, pieces, texts, evenly, rng):
    per_key = min(per_key, most)
    bounds = Bounds(most, per_key, evenly=evenly)
    expected = bounded(rows, most, per_key, texts, evenly)
    shuffled = rows[:]
    rng.shuffle(shuffled)
    parts = []
    for i in range(pieces):
        piece = shuffled[i::pieces]
        users, keys = [u for u, _ in piece], [f"k{k}" for _, k in piece]
        parts.append(
            Contributions.of(
                pa.array(users, pa.int64()), pa.array(keys, pa.string()), KEY, texts=texts
            ).prune(bounds)
        )
    merged = Contributions.concat(parts).prune(bounds)
    shards = [part.bounded(bounds) for _, part in merged.split_users(3)]
    found = Histogram.merge([Histogram.empty(texts=texts), *shards])
    assert found.fingerprints.tolist() == expected.fingerprints.tolist()
    assert found.counts.tolist() == expected.counts.tolist()
    if texts:
        assert found.texts.to_pylist() == expected.texts.to_pylist()


def test_the_merge_test_rejects_cutting_by_arrival():
    """Keeping the first C keys as they come is a bound, but not mergeable."""
    rows = [(0, k) for k in range(8)]
    first = {k for _, k in rows[:2]}
    assert first != {k for _, k in rows[::-1][:2]}


def test_all_of_a_user_counts_before_bounding():
    h = bounded([(1, 1)] * 100 + [(2, 1)], 8, 3)
    assert h.counts.tolist() == [4]
    assert bounded([(1, 1)] * 100, 8, 8).counts.tolist() == [8]


def test_sort_settles_shared_prefixes():
    rng = np.random.default_rng(5)
    high = rng.integers(0, 3, 500).astype(np.uint64)
    low = rng.integers(0, 3, 500).astype(np.uint64)
    priority = rng.integers(0, 4, 500).astype(np.uint64) << np.uint64(31)
    keys = rng.integers(0, 5, 500).astype(np.uint64)
    order, *columns = bounding._sort(high, low, priority, keys)
    expected = np.lexsort((keys, priority, low, high))
    assert all((a == b[order]).all() for a, b in zip(columns, (high, low, keys), strict=True))
    for column in (high, low, priority, keys):
        assert (column[order] == column[expected]).all()


@pytest.mark.parametrize("bits", [0, 1, 16, 20, 32, 33, 63, 64])
def test_the_stable_order_is_that_of_numpy(bits):
    rng = np.random.default_rng(bits)
    for count in (0, 1, 5000):
        keys = rng.integers(0, 1 << 64, count, np.uint64) >> np.uint64(64 - bits) if bits else np.zeros(count)
        keys = keys.astype(np.uint64)
        crowded = keys & np.uint64(0xFFFFF0000000000F)  # many share their first bits, and differ behind
        for column in (keys, np.sort(keys), crowded, np.concatenate([np.sort(keys)[::3], np.sort(crowded)])):
            assert (stable_order(column) == np.argsort(column, kind="stable")).all()


def test_colliding_fingerprints_stay_apart_where_texts_are_released(monkeypatch):
    """At δ > 0 two texts are two keys, whatever their fingerprints."""
    monkeypatch.setattr(histogram, "hash_bytes", lambda values: np.full(len(values), 42, np.uint64))
    h = bounded([(1, 1), (2, 2), (3, 2)], 1, 1, texts=True)
    assert as_dict(h) == {b"k1": 1, b"k2": 2}
    merged = Histogram.merge([h, h])
    assert as_dict(merged) == {b"k1": 2, b"k2": 4}
    assert merged.texts.to_pylist() == [b"k1", b"k2"]


def test_shards_are_ranges_of_the_fingerprint():
    h = Histogram.of_column([f"key{i}" for i in range(3000)], texts=False)
    shards = h.shards()
    assert len(shards) == NOISE_SHARDS
    assert sum(len(s) for s in shards) == len(h) == 3000
    assert all((s.fingerprints >> np.uint64(56) == i).all() for i, s in enumerate(shards))
    assert len(Histogram.empty(texts=True).shards()) == NOISE_SHARDS


def test_reduced_domain_adds_up_cells():
    h = Histogram(np.array([1 << 60, (1 << 60) + 1, 1 << 63], np.uint64), np.array([1, 2, 4]))
    small = h.reduced(8)
    assert small.fingerprints.tolist() == [16, 128]
    assert small.counts.tolist() == [3, 4]
    assert h.reduced(64) is h


def test_counts_and_listed():
    h = Histogram.of_counts(["a", "b", "a", "c"], np.array([1, 2, 3, 0]), texts=True)
    assert as_dict(h) == {b"a": 4, b"b": 2}
    wanted = Histogram.of_column(["a"], texts=False).fingerprints
    assert h.counts_of(wanted).tolist() == [4]
    assert Histogram.empty(texts=False).counts_of(wanted).tolist() == [0]


def test_lengths_must_agree():
    with pytest.raises(InputError, match="same length"):
        Contributions.of([1, 2], ["a"], KEY, texts=False)


def test_table_union_keeps_order_and_places():
    a, _ = KeyTable.build(pa.array([b"x", b"y"], pa.large_binary()))
    b, _ = KeyTable.build(pa.array([b"y", b"z"], pa.large_binary()))
    union, (in_a, in_b) = KeyTable.union([a, b])
    assert sorted(union.texts.to_pylist()) == [b"x", b"y", b"z"]
    assert [union.texts[int(i)].as_py() for i in in_a] == a.texts.to_pylist()
    assert [union.texts[int(i)].as_py() for i in in_b] == b.texts.to_pylist()


@pytest.mark.parametrize("bits", [64, 3])
def test_table_union_tells_texts_of_one_fingerprint_apart(bits):
    """With few bits, texts share fingerprints: the union has each of them once, in the order (fingerprint, text)."""
    rng = np.random.default_rng(bits)
    tables = []
    for size in (0, 5, 30, 30, 1):
        texts = pa.array(sorted({b"%d" % n for n in rng.integers(0, 40, size)}), pa.large_binary())
        tables.append(KeyTable.build(texts, hash_bytes(texts) >> np.uint64(64 - bits))[0])
    union, places = KeyTable.union(tables)
    listed = union.texts.to_pylist()
    assert sorted(listed) == sorted({text for table in tables for text in table.texts.to_pylist()})
    pairs = list(zip(union.fingerprints.tolist(), listed, strict=True))
    assert pairs == sorted(pairs)
    for table, place in zip(tables, places, strict=True):
        assert [listed[int(i)] for i in place] == table.texts.to_pylist()
        assert union.fingerprints[place].tolist() == table.fingerprints.tolist()
