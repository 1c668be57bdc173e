"""Contribution bounding: exact, private rows of users, and the most that one user may add to the histogram.

**Bounding** (user-level privacy). Each (user, key) pair gets a priority by a keyed hash. A user's keys, in that order,
count min(their records, L∞) each until C is used up; sums of values likewise, in whole multiples of the granularity.
The rule looks at one user's records alone, so adding or removing a user moves the histogram by at most C in L1 and L∞
in one key, and no other user's contributions.

**Parts** of a user's rows may drop rows before they are merged (`prune`) without an effect on the result: a row goes if
the keys before it use up C in this part already. What a key counts never falls when rows are added (min and rounding by
a fixed hash are monotone), so those keys use up C in the whole too, and the row counts nothing there. Hence it makes no
difference which parts are pruned, and a user of any size passes in bounded memory: of keys that round to nothing a user
keeps the first `_MAX_KEYS`, by priority, in parts and in the whole alike.

Keys in that order favour what few of a user's records say: a user with nine records of 1 and one of 10 who counts once
would count 10 in half of all cases. Where records are what is counted (`Bounds.evenly`), every record, up to L∞ of one
key, has the same chance: of a user's N records, put in order by key, those are kept at which the rank times C/N, plus a
keyed hash of the user, passes a whole number (systematic sampling). So C of N are kept, and n records of one key keep
n·C/N on average, rounded up or down. That needs N: no key is dropped before, except beyond the first `_MAX_KEYS`.

Where noise depends on the L2 norm of hashed counts, a user's keys must not meet in a bucket: with `KeyClasses`, of a
user's keys in one class only that of lowest priority stays, before anything else is dropped. That merges too: the first
of a class is first in every part that has it. But another part may have an earlier key of a class that counts less than
the one here. So a part takes each key before a row to use up 1 of C, the least that any key of its class counts, and a
key with a value, which may round to 0, to use up nothing.

Without users a record is the privacy unit, and every row counts one, or its value.

`Contributions` are never written or shown: only the bounded histogram goes on, to a mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.contributions.histogram import Histogram, KeyTable, changes, stable_order, sum_runs
from hushgram.contributions.keys import (
    array_of,
    canonical,
    column_positions,
    encode,
    fingerprints,
    mix,
    one_array,
)
from hushgram.contributions.sums import GRAINS, MAX_MULTIPLE, Grid, round_grains
from hushgram.contributions.users import user_tokens
from hushgram.errors import InputError
from hushgram.noise.entropy import ReleaseKey
from hushgram.sensitivity import ONE_RECORD, Sensitivity

__all__ = ["BoundingSpec", "Bounds", "Contributions", "KeyClasses"]

_HIGH32 = np.uint64(0xFFFFFFFF00000000)
_HALF = np.uint64(32)
_CROWD_BITS = 18
# No bound on a user is above 2^20, so more of one key makes no difference; and 2^31 times as much is below 2^63.
_MAX_COUNT = GRAINS * MAX_MULTIPLE
# At most this many keys of a user are considered, or C if that is more; values that round to 0 and bounding by record
# need so many.
_MAX_KEYS = 1 << 16
# for another hash of a user than that which orders its keys
_SALT = np.uint64(0xD1B54A32D192ED03)
#: Of C, what is for named keys before others, where both are counted.
NAMED_SHARE = Fraction(7, 8)

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class KeyClasses:
    """Public classes of keys; a user keeps at most one key of each."""

    seeds: U64
    classes: int

    def of(self, fingerprints: U64) -> U64:
        """Return the class of each key."""
        return column_positions(fingerprints, self.seeds, self.classes)


@dataclass(frozen=True, eq=False)
class Bounds:
    """The most that one user contributes: C in all and L∞ to one key; with ``key_classes`` one key per class.

    ``weighted`` says that rows hold grains of values in place of counts; the bounds are multiples of the granularity.
    With ``evenly`` every record of a user, up to L∞ of one key, has the same chance of being one of C.
    """

    max_contributions: int
    max_per_key: int
    key_classes: KeyClasses | None = None
    weighted: bool = False
    evenly: bool = False

    @classmethod
    def of_records(cls, max_contributions: int) -> Bounds:
        """Return the bounds for C records of each user, drawn at random, whatever their keys are."""
        return cls(max_contributions, _MAX_COUNT, evenly=True)

    @property
    def sensitivity(self) -> Sensitivity:
        """Return how far one user moves the bounded histogram."""
        classes = 0 if self.key_classes is None else self.key_classes.classes
        return Sensitivity(self.max_contributions, self.max_per_key, classes=classes)

    @property
    def keys(self) -> int:
        """Return how many keys of a user are looked at."""
        return max(self.max_contributions, _MAX_KEYS)

    def whole(self, rows: Contributions) -> I64:
        """Return the counts of distinct rows, each at most L∞ (of values: in multiples of the granularity)."""
        if self.weighted:
            return round_grains(np.minimum(rows.counts, self.max_per_key * GRAINS), rows.hashes())
        return np.minimum(rows.counts, self.max_per_key)


@dataclass(frozen=True)
class Contributions:
    """Rows (user token, key, count) of users, before or after rows that cannot count are pruned.

    Sums of values have grains in place of counts (`hushgram.contributions.sums`). Several metrics of the same records
    are several columns of counts.
    """

    user_high: U64
    user_low: U64
    keys: U64
    counts: I64
    table: KeyTable | None = None
    #: whether rows are distinct and in canonical order, so that no pass has to look
    ordered: bool = False

    @classmethod
    def of(
        cls,
        users: Any,
        keys: Any,
        release_key: ReleaseKey,
        *,
        texts: bool,
        values: Sequence[tuple[pa.Array, Grid] | None] = (None,),
    ) -> Contributions:
        """Return the rows of a column of users and a column of keys.

        Args:
            users: the column of users.
            keys: the column of keys.
            release_key: keys the users' tokens.
            texts: whether keys are kept by their text (δ > 0).
            values: per metric a column of values and its grid, or None where each record counts one.
        """
        user_column, table = canonical(users, "users"), None
        if texts:
            encoded = encode(keys, "keys")
            table, places = KeyTable.build(encoded.values)
            found = places.take(encoded.codes)
        else:
            found = fingerprints(keys, "keys")
        rows = len(user_column)
        if len(found) != rows:
            raise InputError(f"users and keys must have the same length, got {rows} and {len(found)}")
        # Most rows of a batch have different users, so each row gets its token: faster than finding the distinct ones.
        high, low = user_tokens(user_column, release_key.subkey("user-tokens"))
        out = cls(high, low, found, np.ones(rows, np.int64), table)
        if all(value is None for value in values):
            return out if len(values) == 1 else out._with(np.ones((rows, len(values)), np.int64))
        columns = [out.counts if value is None else value[1].grains(value[0], out.hashes) for value in values]
        counts = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        some: NDArray[np.bool_] = counts > 0 if counts.ndim == 1 else np.asarray(counts.any(axis=1))
        return out._with(counts)._take(some)

    def __len__(self) -> int:
        return len(self.keys)

    def metric(self, index: int, *, present: bool = False) -> Contributions:
        """Return the rows of one of several metrics; with ``present`` only those that count something for it."""
        if self.counts.ndim == 1:
            return self
        rows = self._with(np.ascontiguousarray(self.counts[:, index]))
        return rows._take(np.flatnonzero(rows.counts > 0)) if present else rows

    @classmethod
    def concat(cls, parts: Sequence[Contributions]) -> Contributions:
        """Return all rows of the parts, over one table."""
        parts = [part for part in parts if len(part.keys)] or list(parts[:1])
        if len(parts) == 1:
            return parts[0]
        table, keys = None, [part.keys for part in parts]
        if parts[0].table is not None:
            table, moved = KeyTable.union([part.table for part in parts if part.table is not None])
            keys = [places.take(part._places) for places, part in zip(moved, parts, strict=True)]
        return cls(
            np.concatenate([part.user_high for part in parts]),
            np.concatenate([part.user_low for part in parts]),
            np.concatenate(keys),
            np.concatenate([part.counts for part in parts]),
            table,
        )

    def prune(self, *bounds: Bounds) -> Contributions:
        """Return each (user, key) once with its count summed, without rows that cannot count under any of the bounds.

        ``bounds`` are those of the metrics, in the order of their columns. Rows come out in canonical order: user,
        priority, key.
        """
        whole, classes = self._distinct()[0], bounds[0].key_classes
        rows, first_of_user = whole._ordered(classes)
        most_keys = int(np.diff(np.flatnonzero(first_of_user), append=len(rows)).max(initial=0))
        if all(
            (bound.evenly or most_keys * bound.max_per_key <= bound.max_contributions)
            and most_keys <= bound.keys
            for bound in bounds
        ):  # nobody has more than can count
            return rows
        rank = _before(np.ones(len(rows.keys), np.int64), first_of_user)
        useful = np.zeros(len(rows.keys), np.bool_)
        for metric, bound in enumerate(bounds):
            if bound.evenly:
                useful |= rank < bound.keys
                continue
            least = np.full(len(rows.keys), 0 if bound.weighted else 1, np.int64)  # of any key of a class
            counts = bound.whole(rows.metric(metric)) if classes is None else least
            used = _before(counts, first_of_user)
            useful |= (used < bound.max_contributions) & (rank < bound.keys)
        return rows._take(np.flatnonzero(useful))

    def first_rows(self) -> NDArray[np.intp]:
        """Return the first row of each user of ordered rows."""
        return np.flatnonzero(changes(self.user_high) | changes(self.user_low))

    def prune_if_many(self, *bounds: Bounds) -> Contributions:
        """Return `prune` where that is likely to drop at least a quarter of the rows, else all rows as they are.

        Both bound to the same histogram. The estimate is a count by the first bits of the user.
        """
        crowd = np.bincount((self.user_high >> np.uint64(64 - _CROWD_BITS)).astype(np.int64))
        most = max(bound.keys if bound.evenly else bound.max_contributions for bound in bounds)
        kept = int(np.minimum(crowd, most).sum())
        return self.prune(*bounds) if 4 * kept <= 3 * len(self.keys) else self

    def bounded(self, bounds: Bounds) -> Histogram:
        """Return the bounded histogram: each user adds at most C in all, and L∞ to one key."""
        rows, first_of_user = self._ordered(bounds.key_classes)
        counts = bounds.whole(rows)
        if bounds.weighted or bounds.evenly:
            counts[_before(np.ones_like(counts), first_of_user) >= bounds.keys] = 0
        if bounds.evenly:
            counts = _drawn(counts, first_of_user, mix(rows.user_low ^ _SALT), bounds.max_contributions)
        used = _before(counts, first_of_user)
        taken = np.minimum(counts, np.maximum(bounds.max_contributions - used, 0))
        kept = np.flatnonzero(taken)
        return Histogram.of_keys(rows.keys.take(kept), taken.take(kept), rows.table, bounds.sensitivity)

    def bounded_apart(self, bounds: Bounds, named: NDArray[np.bool_]) -> tuple[Histogram, Histogram]:
        """Return the bounded histograms of the keys that ``named`` marks in the table, and of all others.

        Both together are one vector: each user adds at most C to them in all, and L∞ to one key. Named keys come first
        up to `NAMED_SHARE` of C, then other keys, and then named keys again. The classes are those of other keys.
        """
        rows, first = self._ordered()
        of_named = named.take(rows._places)
        counts = bounds.whole(rows)
        if bounds.weighted:
            counts[_before(np.ones_like(counts), first) >= bounds.keys] = 0
        own, rest = np.where(of_named, counts, 0), np.where(of_named, 0, counts)
        if bounds.key_classes is not None:
            rest[~rows._first_of_class(bounds.key_classes, first, ~of_named)] = 0
        most = bounds.max_contributions
        reserved = max(int(most * NAMED_SHARE), bounds.max_per_key)
        before = np.minimum(_of_user(own, first), reserved)
        taken_rest = np.minimum(rest, np.maximum(most - before - _before(rest, first), 0))
        left = most - _of_user(taken_rest, first)
        taken_own = np.minimum(own, np.maximum(left - _before(own, first), 0))
        moved = replace(bounds.sensitivity, halves=True)
        found = []
        for taken in (taken_own, taken_rest):
            kept = np.flatnonzero(taken)
            found.append(Histogram.of_keys(rows.keys.take(kept), taken.take(kept), rows.table, moved))
        return found[0], found[1]

    def totals(self, bounds: Bounds) -> I64:
        """Return what each user would contribute without a bound on the total; users with 0 are left out."""
        rows, first_of_user = self._ordered(bounds.key_classes)
        starts = np.flatnonzero(first_of_user)
        counts = bounds.whole(rows)
        sums: I64 = np.add.reduceat(counts, starts) if len(starts) else counts
        return sums[sums > 0]

    def per_user(self, in_units: Callable[[I64], I64]) -> tuple[I64, I64, I64]:
        """Return of each user the number of keys, the largest count of a key and the sum; ``in_units`` maps counts."""
        rows, first_of_user = self._ordered()
        starts = np.flatnonzero(first_of_user)
        if not len(starts):
            return (np.zeros(0, np.int64),) * 3
        counts = in_units(rows.counts)
        keys: I64 = np.diff(np.append(starts, len(counts)))
        return keys, np.maximum.reduceat(counts, starts), np.add.reduceat(counts, starts)

    def first_keys(self, max_keys: int, open_: NDArray[np.bool_] | None) -> tuple[I64, I64]:
        """Return the first ``max_keys`` open keys of each user by priority, user by user, and how many of them each
        user has.

        ``open_`` marks keys of the table; None where all are open.
        """
        rows, first = self._ordered()
        keys = rows._places
        if open_ is not None:
            kept = np.flatnonzero(open_[keys])
            keys, first = keys[kept], changes(np.cumsum(first, dtype=np.int64)[kept])
        starts = np.flatnonzero(first)
        number = np.diff(np.append(starts, len(keys)))
        if number.max(initial=0) > max_keys:
            keys = keys[np.arange(len(keys)) - np.repeat(starts, number) < max_keys]
            number = np.minimum(number, max_keys)
        return keys, number

    def present(self) -> Contributions:
        """Return the rows that count something for any metric, over a table of their keys alone."""
        counts = self.counts if self.counts.ndim == 1 else self.counts.max(axis=1)
        rows = self if bool(np.all(counts > 0)) else self._take(np.flatnonzero(counts > 0))
        return rows._compact()

    def split_users(self, shards: int) -> list[tuple[int, Contributions]]:
        """Return the rows by user shard (a function of the user alone); empty shards are left out."""
        shard = _user_shards(self.user_high, shards)
        order = np.argsort(shard, kind="stable")
        shard, sorted_rows = shard[order], self._take(order)
        starts = np.flatnonzero(changes(shard))
        numbers, ranges = shard[starts].tolist(), pairwise([*starts.tolist(), len(shard)])
        return [
            (i, sorted_rows._slice(low, high)._compact())
            for i, (low, high) in zip(numbers, ranges, strict=True)
        ]

    def cut_users(self, most: int) -> Iterator[Contributions]:
        """Yield rows in canonical order as parts of whole users: ``most`` rows, and all others of their last user."""
        starts = np.flatnonzero(changes(self.user_high))
        after = np.searchsorted(starts, np.arange(most, len(self), most))
        cuts = np.unique(starts[after[after < len(starts)]])
        for low, high in pairwise([0, *cuts.tolist(), len(self)]):
            yield self._slice(low, high)._compact()

    def _slice(self, low: int, high: int) -> Contributions:
        """Return a range of the rows, as views."""
        at = slice(low, high)
        return Contributions(
            self.user_high[at], self.user_low[at], self.keys[at], self.counts[at], self.table, self.ordered
        )

    def _compact(self) -> Contributions:
        """Return the same rows without the texts that no row names."""
        if self.table is None:
            return self
        used = np.zeros(len(self.table.fingerprints), np.bool_)
        used[self._places] = True
        if used.all():
            return self
        table, places = self.table.keep(used)
        return replace(self, keys=places.take(self._places), table=table)

    @property
    def _places(self) -> I64:
        """Return the places of the keys in the table, as numpy takes indices without converting them."""
        return self.keys.view(np.int64)

    def _with(self, counts: I64) -> Contributions:
        return replace(self, counts=counts)

    def hashes(self) -> U64:
        """Return a keyed hash of (user, key): the order in which a user's keys are kept, and how values are rounded."""
        prints = self.keys if self.table is None else self.table.fingerprints.take(self._places)
        return mix(prints ^ mix(self.user_low))

    def _take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Contributions:
        """Return some of the rows, in the order that they have."""
        at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return replace(
            self,
            user_high=self.user_high.take(at),
            user_low=self.user_low.take(at),
            keys=self.keys.take(at),
            counts=self.counts.take(at, axis=0),
        )

    def _ordered(self, key_classes: KeyClasses | None = None) -> tuple[Contributions, NDArray[np.bool_]]:
        """Return distinct (user, key) rows by user, priority and key, with the first row of each user marked.

        With ``key_classes``, only the first row of each user and class.
        """
        rows, first_of_user = self._distinct()
        if key_classes is None:
            return rows, first_of_user
        every = np.ones(len(rows), np.bool_)
        first = rows._first_of_class(key_classes, first_of_user, every)  # a user's first row is one
        return rows._take(first), first_of_user[first]

    def _first_of_class(
        self, key_classes: KeyClasses, first_of_user: NDArray[np.bool_], some: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return which of ``some`` ordered rows are the first of their user and class among these."""
        user = np.cumsum(first_of_user).astype(
            np.uint64
        )  # below 2^32 rows per part, and at most 2^27 classes
        prints = self.keys if self.table is None else self.table.fingerprints[self._places]
        at = np.flatnonzero(some)
        group = (user * np.uint64(key_classes.classes) + key_classes.of(prints))[at]
        order = stable_order(group)
        first = np.zeros(len(self), np.bool_)
        first[at[order[changes(group[order])]]] = True
        return first

    def _distinct(self) -> tuple[Contributions, NDArray[np.bool_]]:
        """Return distinct (user, key) rows in canonical order, and the first row of each user."""
        if self.ordered:
            return self, changes(self.user_high) | changes(self.user_low)
        order, high, low, keys = _sort(self.user_high, self.user_low, self.hashes(), self.keys)
        first_of_user = changes(high) | changes(low)
        starts = np.flatnonzero(first_of_user | changes(keys))
        counts = sum_runs(self.counts, order, starts)
        counts = np.minimum(counts, _MAX_COUNT)  # parts of parts never overflow
        high, low, keys = (column.take(starts) for column in (high, low, keys))
        rows = Contributions(high, low, keys, counts, self.table, True)
        return rows, first_of_user.take(starts)


def _of_user(counts: I64, first: NDArray[np.bool_]) -> I64:
    """Return the sum of the counts of its group for each row; the first rows of groups are marked."""
    starts = np.flatnonzero(first)
    sums = np.add.reduceat(counts, starts) if len(starts) else counts
    return np.repeat(sums, np.diff(np.append(starts, len(counts))))


@dataclass(frozen=True, eq=False)
class BoundingSpec:
    """Which columns are counted, and how much of one user: everything that contribution bounding needs.

    Attributes:
        user: the column of users; None where a record is the privacy unit.
        key: the column of keys.
        release_key: keys the users' tokens, the order in which a user's keys are kept, and the rounding of values.
        bounds: the bounds of a user, one per metric.
        texts: whether keys are kept by their text (δ > 0, public keys) or by their fingerprint.
        values: per metric a column and the grid of its sums, or None where records are counted.
        public_keys: where given, records of other keys are left out first, so that they use up no bounds.
    """

    user: str | None
    key: str
    release_key: ReleaseKey
    bounds: tuple[Bounds, ...]
    texts: bool
    values: tuple[tuple[str, Grid] | None, ...] = (None,)
    public_keys: KeyTable | None = None

    @property
    def value_columns(self) -> tuple[str, ...]:
        """Return the columns of values, each once."""
        return tuple(dict.fromkeys(value[0] for value in self.values if value is not None))

    def contributions(self, users: Any, keys: Any, values: Sequence[Any] = ()) -> Contributions:
        """Return the rows of a batch of records with users; ``values`` are its `value_columns`. Exact and private."""
        keys, users, *values = self._listed(keys, users, *values)
        weights = [self._weights(value, values) for value in self.values]
        key, texts = self.release_key, self.texts
        return Contributions.of(users, keys, key, texts=texts, values=weights)

    def histogram(self, keys: Any, values: Sequence[Any] = (), record: Sensitivity = ONE_RECORD) -> Histogram:
        """Return the counts of a batch of records without users, or their values in grains. Exact and private.

        Grains become multiples of the granularity when all batches are together (`Histogram.rounded`). ``record`` says
        how many rows one record may have.
        """
        keys, *values = self._listed(keys, *values)
        weights = self._weights(self.values[0], values)
        if weights is None:
            return Histogram.of_counts(keys, None, texts=self.texts, sensitivity=record)
        column, grid = weights
        salt = self.release_key.source("rounding").words(1)[0]

        def draws() -> U64:
            return mix(fingerprints(keys) ^ salt)

        grains, moved = grid.grains(column, draws), record.times(grid.most)
        return Histogram.of_counts(keys, grains, texts=self.texts, sensitivity=moved)

    def _weights(
        self, value: tuple[str, Grid] | None, columns: Sequence[Any]
    ) -> tuple[pa.Array, Grid] | None:
        return None if value is None else (columns[self.value_columns.index(value[0])], value[1])

    def _listed(self, keys: Any, *beside: Any) -> Sequence[Any]:
        """Return the rows whose key is public, where keys are: keys as canonical bytes, other columns beside them."""
        if self.public_keys is None:
            return keys, *beside
        encoded = encode(keys)
        inside = (self.public_keys.find(encoded.values) >= 0)[encoded.codes]
        rows = pa.array(np.flatnonzero(inside))
        others = (one_array(array_of(column, "users")).take(rows) for column in beside)
        return encoded.values.take(pa.array(encoded.codes[inside])), *others


def _user_shards(high: U64, shards: int) -> NDArray[np.uint16]:
    """Return the shard of each user, in 16 bits: numpy sorts those by radix."""
    return (((high >> _HALF) * np.uint64(shards)) >> _HALF).astype(np.uint16)


def _sort(high: U64, low: U64, priority: U64, keys: U64) -> tuple[NDArray[np.intp], U64, U64, U64]:
    """Return the order by (high, low, priority, key), and high, low and keys in it.

    One sort of 64 bits, half user and half priority, settles nearly all; only users that share their first 32 bits
    (or pairs that share all 64) are sorted again by everything.
    """
    packed = (high & _HIGH32) | (priority >> _HALF)
    order = stable_order(packed)
    packed, highs, lows, names = (column.take(order) for column in (packed, high, low, keys))
    differ = ~changes(packed >> _HALF) & (changes(highs) | changes(lows))
    unsettled = differ | (~changes(packed) & changes(names))
    if unsettled.any():
        groups = np.unique(packed[unsettled] >> _HALF) << _HALF
        first, after = np.searchsorted(packed, groups), np.searchsorted(packed, groups | ~_HIGH32, "right")
        inside = np.concatenate([np.arange(*each) for each in zip(first, after, strict=True)])
        rows = order[inside]
        rows = rows[np.lexsort((keys[rows], priority[rows], low[rows], high[rows]))]
        order[inside], highs[inside], lows[inside], names[inside] = rows, high[rows], low[rows], keys[rows]
    return order, highs, lows, names


def _before(counts: I64, first: NDArray[np.bool_]) -> I64:
    """Return the sum of the counts before each row within its group, whose first rows are marked."""
    before = np.cumsum(counts) - counts
    starts = np.flatnonzero(first)
    return before - np.repeat(before[starts], np.diff(np.append(starts, len(counts))))


def _drawn(counts: I64, first: NDArray[np.bool_], hashes: U64, most: int) -> I64:
    """Return how many records of each row are among ``most`` of its user's, drawn systematically; users with fewer
    keep all. ``hashes`` are those of the users, for each row."""
    starts = np.flatnonzero(first)
    if not len(starts):
        return counts
    limit = (1 << 62) // most  # no user has so many records; products stay below 2^63
    records = np.minimum(np.add.reduceat(counts, starts), limit)
    step = np.repeat(np.maximum(records, most), np.diff(np.append(starts, len(counts))))
    before = np.minimum(_before(counts, first), limit)
    after = np.minimum(before + counts, limit)
    shift = (hashes % step.astype(np.uint64)).astype(np.int64)
    drawn: I64 = (after * most + shift) // step - (before * most + shift) // step
    return np.where(step == most, counts, drawn)
