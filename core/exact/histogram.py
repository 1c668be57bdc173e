"""Exact, private data: bounded contributions and the sparse histogram, as sorted arrays.

Nothing in this file is ever written or shown: these classes have no writer. Only a mechanism turns them into
something released.

**Bounding** (user-level privacy). Each (user, key) pair gets a priority by a keyed hash. Of a user's keys the C of
lowest priority are kept; taken in that order, each counts min(its records, L∞) until C is used up. The rule looks at
one user's records alone, so adding or removing a user changes the histogram by at most C in L1 and L∞ in one key. It
is mergeable: a key among the C lowest of all is among the C lowest of every part that holds it, so parts may be cut
before they are merged and counts stay exact. Hence a user of any size passes in bounded memory, and the result does
not depend on how the data were cut into parts.

Keys are integers here: at δ = 0 the 64-bit fingerprint; at δ > 0, where key text is released and two texts must
never be confused, the index into a `KeyTable` that is sorted by (fingerprint, text).

Where noise depends on the L2 norm of hashed counts, a user's keys must not meet in a bucket: with `Apart`, of a user's
keys in one class only that of lowest priority stays, before anything else is cut. That merges too: the first of a
class is first in every part that holds it, and the first keys of the classes of a part have no lower priority than
those of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.errors import InputError
from hushgram.exact.hashing import column_positions, mix
from hushgram.exact.keys import as_column, canonical, encode, hash_bytes, user_tokens
from hushgram.noise.entropy import ReleaseKey, digest

__all__ = ["NOISE_SHARDS", "Apart", "Contributions", "Histogram", "KeyTable", "text_buffers"]

#: Noise is drawn for each of these many ranges of the fingerprint, however the runner groups them.
NOISE_SHARDS = 256
_SHARD_BITS = np.uint64(56)
_HIGH32 = np.uint64(0xFFFFFFFF00000000)
_HALF = np.uint64(32)
_CROWD_BITS = 20

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class KeyTable:
    """Distinct key texts in the canonical order (fingerprint, bytes)."""

    fingerprints: U64
    texts: pa.LargeBinaryArray

    @classmethod
    def build(cls, texts: pa.LargeBinaryArray) -> tuple[KeyTable, U64]:
        """The table of distinct ``texts``, and for each of them its place in it."""
        prints = hash_bytes(texts)
        order = np.argsort(prints, kind="stable")
        tied = np.flatnonzero(np.diff(prints[order]) == 0)
        if len(tied):  # two texts with one fingerprint: order those by their bytes
            text = texts.to_pylist()
            order = np.array(
                sorted(range(len(text)), key=lambda i: (int(prints[i]), text[i])), dtype=np.int64
            )
        place = np.empty(len(order), dtype=np.uint64)
        place[order] = np.arange(len(order), dtype=np.uint64)
        return cls(prints[order], texts.take(pa.array(order))), place

    @classmethod
    def union(cls, tables: Sequence[KeyTable]) -> tuple[KeyTable, list[U64]]:
        """One table of all texts, and for each table where its rows went."""
        together = pa.concat_arrays([table.texts for table in tables]).dictionary_encode()
        union, place = cls.build(together.dictionary)
        moved = place[together.indices.to_numpy(zero_copy_only=False)]
        return union, np.split(moved, np.cumsum([len(table.texts) for table in tables])[:-1])

    def keep(self, used: NDArray[np.bool_]) -> tuple[KeyTable, U64]:
        """The rows marked in ``used``, and the new place of each old row (meaningless where unused)."""
        return KeyTable(self.fingerprints[used], self.texts.filter(pa.array(used))), (
            np.cumsum(used) - 1
        ).astype(np.uint64)


@dataclass(frozen=True, eq=False)
class Apart:
    """Public classes of keys, of each of which a user may keep one."""

    seeds: U64
    classes: int

    def of(self, fingerprints: U64) -> U64:
        """The class of each key."""
        return column_positions(fingerprints, self.seeds, self.classes)


@dataclass(frozen=True)
class Contributions:
    """Rows (user token, key, count): what users did, before or after cutting to C keys a user."""

    user_high: U64
    user_low: U64
    keys: U64
    counts: I64
    table: KeyTable | None = None

    @classmethod
    def of(cls, users: Any, keys: Any, release_key: ReleaseKey, *, texts: bool) -> Contributions:
        """From a column of users and a column of keys; ``texts`` for δ > 0."""
        key_column, user_column = encode(keys, "keys"), canonical(users, "users")
        rows = len(user_column)
        if len(key_column.codes) != rows:
            raise InputError(
                f"users and keys must have the same length, got {rows} and {len(key_column.codes)}"
            )
        # Most rows of a batch have different users, so each row gets its token: faster than finding the distinct ones.
        high, low = user_tokens(user_column, release_key.subkey("user-tokens"))
        table, places = (
            (KeyTable.build(key_column.values)) if texts else (None, hash_bytes(key_column.values))
        )
        return cls(high, low, places[key_column.codes], np.ones(rows, np.int64), table)

    @classmethod
    def concat(cls, parts: Sequence[Contributions]) -> Contributions:
        """All rows of the parts, over one table."""
        parts = [part for part in parts if len(part.keys)] or list(parts[:1])
        if len(parts) == 1:
            return parts[0]
        table, keys = None, [part.keys for part in parts]
        if parts[0].table is not None:
            table, moved = KeyTable.union([part.table for part in parts if part.table is not None])
            keys = [places[part.keys] for places, part in zip(moved, parts, strict=True)]
        return cls(
            np.concatenate([part.user_high for part in parts]),
            np.concatenate([part.user_low for part in parts]),
            np.concatenate(keys),
            np.concatenate([part.counts for part in parts]),
            table,
        )

    def cut(self, most_keys: int, apart: Apart | None = None) -> Contributions:
        """Each (user, key) once with its count summed, and of each user the ``most_keys`` keys of lowest priority.

        Rows come out in canonical order: user, priority, key.
        """
        rows, first_of_user = self._ordered(apart)
        rank = _rank(first_of_user)
        return rows._take(np.flatnonzero(rank < most_keys))

    def thinned(self, most_keys: int, apart: Apart | None = None) -> Contributions:
        """`cut` where that leaves out at least a quarter of the rows, else all rows as they are.

        Both stand for the same contributions. The look before is a count by the first bits of the user.
        """
        crowd = np.bincount((self.user_high >> np.uint64(64 - _CROWD_BITS)).astype(np.int64))
        kept = int(np.minimum(crowd, most_keys).sum())
        return self.cut(most_keys, apart) if 4 * kept <= 3 * len(self.keys) else self

    def bounded(self, max_contributions: int, max_per_key: int, apart: Apart | None = None) -> Histogram:
        """The histogram that these users may add: at most C in all, and L∞ to one key, each."""
        rows, first_of_user = self._ordered(apart)
        counts = np.minimum(rows.counts, max_per_key)
        before = np.cumsum(counts) - counts
        starts = np.flatnonzero(first_of_user)
        used = before - np.repeat(before[starts], np.diff(np.append(starts, len(counts))))
        taken = np.minimum(counts, np.maximum(max_contributions - used, 0))
        kept = np.flatnonzero(taken)
        return Histogram.of_keys(rows.keys[kept], taken[kept], rows.table)

    def totals(self, max_per_key: int, apart: Apart | None = None) -> I64:
        """What each user could contribute if it were not cut: at most ``max_per_key`` a key."""
        rows, first_of_user = self._ordered(apart)
        starts = np.flatnonzero(first_of_user)
        counts = np.minimum(rows.counts, max_per_key)
        return np.add.reduceat(counts, starts) if len(starts) else counts

    def split_users(self, shards: int) -> list[tuple[int, Contributions]]:
        """Rows by user shard (a function of the user alone); empty shards are left out."""
        shard = ((self.user_high >> _HALF) * np.uint64(shards)) >> _HALF
        order = np.argsort(
            shard.astype(np.uint16) if shards <= 1 << 16 else shard, kind="stable"
        )  # 16 bits: radix sort
        ends = np.searchsorted(shard[order], np.arange(shards + 1, dtype=np.uint64))
        return [
            (i, self._take(order[low:high])._compact())
            for i, (low, high) in enumerate(pairwise(ends))
            if high > low
        ]

    def _compact(self) -> Contributions:
        """Without the texts that no row names."""
        if self.table is None:
            return self
        used = np.zeros(len(self.table.fingerprints), np.bool_)
        used[self.keys] = True
        table, places = self.table.keep(used)
        return Contributions(self.user_high, self.user_low, places[self.keys], self.counts, table)

    def _take(self, rows: NDArray[np.intp]) -> Contributions:
        return Contributions(
            self.user_high[rows], self.user_low[rows], self.keys[rows], self.counts[rows], self.table
        )

    def _ordered(self, apart: Apart | None = None) -> tuple[Contributions, NDArray[np.bool_]]:
        """Distinct (user, key) rows by user, priority and key, with the first row of each user marked.

        With ``apart``, the first row of each user and class.
        """
        prints = self.keys if self.table is None else self.table.fingerprints[self.keys]
        priority = mix(prints ^ mix(self.user_low))
        order = _sort(self.user_high, self.user_low, priority, self.keys)
        high, low, keys = self.user_high[order], self.user_low[order], self.keys[order]
        first_of_user = _changes(high) | _changes(low)
        first_of_pair = first_of_user | _changes(keys)
        starts = np.flatnonzero(first_of_pair)
        counts = np.add.reduceat(self.counts[order], starts) if len(starts) else self.counts[:0]
        rows = Contributions(high[starts], low[starts], keys[starts], counts, self.table)
        first_of_user = first_of_user[starts]
        if apart is None:
            return rows, first_of_user
        user = np.cumsum(first_of_user).astype(np.uint64)  # from 1 on: below 2^32 rows a part
        group = user << _HALF | apart.of(prints[order][starts])
        kept = np.sort(np.unique(group, return_index=True)[1])  # a user's first row is the first of its class
        return rows._take(kept), first_of_user[kept]


@dataclass(frozen=True)
class Histogram:
    """Exact counts of distinct keys, sorted by fingerprint (and text)."""

    fingerprints: U64
    counts: I64
    texts: pa.LargeBinaryArray | None = None

    @classmethod
    def empty(cls, *, texts: bool) -> Histogram:
        """No keys at all."""
        return cls(
            np.zeros(0, np.uint64), np.zeros(0, np.int64), pa.array([], pa.large_binary()) if texts else None
        )

    @classmethod
    def of_keys(cls, keys: U64, counts: I64, table: KeyTable | None) -> Histogram:
        """Sum of ``counts`` by key."""
        places, sums = _sum_by(keys, counts)
        if table is None:
            return cls(places, sums)
        return cls(table.fingerprints[places], sums, table.texts.take(pa.array(places)))

    @classmethod
    def of_column(cls, keys: Any, *, texts: bool) -> Histogram:
        """Record-level: every row counts one."""
        return cls.of_counts(keys, None, texts=texts)

    @classmethod
    def of_counts(cls, keys: Any, counts: I64 | None, *, texts: bool) -> Histogram:
        """Sum of ``counts`` (None: ones) by key, for a column of keys that may repeat."""
        encoded = encode(as_column(keys))
        ones = counts is None
        weights = np.ones(len(encoded.codes), np.int64) if counts is None else counts
        sums = np.zeros(len(encoded.values), np.int64)
        if ones:
            sums = np.bincount(encoded.codes, minlength=len(encoded.values)).astype(np.int64)
        else:
            np.add.at(sums, encoded.codes, weights)
        table, places = KeyTable.build(encoded.values) if texts else (None, hash_bytes(encoded.values))
        held = np.flatnonzero(sums)
        return cls.of_keys(places[held], sums[held], table)

    @classmethod
    def merge(cls, parts: Iterable[Histogram]) -> Histogram:
        """The sum of several histograms."""
        held = list(parts)
        if len(held) == 1:
            return held[0]
        counts = np.concatenate([part.counts for part in held])
        if held[0].texts is None:
            return cls.of_keys(np.concatenate([part.fingerprints for part in held]), counts, None)
        tables = [KeyTable(part.fingerprints, part.texts) for part in held]
        table, places = KeyTable.union(tables)
        return cls.of_keys(np.concatenate(places), counts, table)

    def shards(self) -> list[Histogram]:
        """The `NOISE_SHARDS` ranges by the top bits of the fingerprint, empty ones included."""
        ends = np.searchsorted(self.fingerprints >> _SHARD_BITS, np.arange(NOISE_SHARDS + 1, dtype=np.uint64))
        nothing = self.part(0, 0)
        return [self.part(low, high) if high > low else nothing for low, high in pairwise(ends.tolist())]

    def part(self, low: int, high: int) -> Histogram:
        """Rows [low, high)."""
        texts = None if self.texts is None else self.texts.slice(low, high - low)
        return Histogram(self.fingerprints[low:high], self.counts[low:high], texts)

    def reduced(self, domain_bits: int) -> Histogram:
        """The histogram over the first ``domain_bits`` bits of the fingerprints: the cells of the domain."""
        if domain_bits == 64 or not len(self):
            return self
        cells = self.fingerprints >> np.uint64(64 - domain_bits)
        starts = np.flatnonzero(_changes(cells))
        counts = np.add.reduceat(self.counts, starts) if len(starts) else self.counts
        return Histogram(cells[starts], counts)

    def digest(self) -> bytes:
        """SHA-256 of the keys and counts."""
        if not len(self):  # most shards of a small release
            return _digest_of_nothing(self.texts is not None)
        return self._digest()

    def _digest(self) -> bytes:
        if self.texts is None:
            return digest(self.fingerprints, self.counts)
        return digest(self.fingerprints, self.counts, *text_buffers(self.texts))

    def counts_of(self, wanted: U64) -> I64:
        """The count of each of the ``wanted`` fingerprints, 0 where there is none."""
        at = np.searchsorted(self.fingerprints, wanted)
        at = np.minimum(at, max(len(self.fingerprints) - 1, 0))
        if not len(self.fingerprints):
            return np.zeros(len(wanted), np.int64)
        return np.where(self.fingerprints[at] == wanted, self.counts[at], 0)

    def __len__(self) -> int:
        return len(self.fingerprints)


@cache
def _digest_of_nothing(texts: bool) -> bytes:
    return Histogram.empty(texts=texts)._digest()


def text_buffers(texts: pa.LargeBinaryArray) -> tuple[I64, NDArray[np.uint8]]:
    """Lengths and bytes of a slice of texts, without what lies around it."""
    if not len(texts):
        return np.zeros(0, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.diff(offsets), np.frombuffer(texts.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]


def _sort(high: U64, low: U64, priority: U64, keys: U64) -> NDArray[np.intp]:
    """The order by (high, low, priority, key).

    One sort of 64 bits, half user and half priority, settles nearly all; only users that share their first 32 bits
    (or pairs that share all 64) are sorted again by everything.
    """
    packed = (high & _HIGH32) | (priority >> _HALF)
    order = np.argsort(packed)
    packed = packed[order]
    same_user = ~_changes(packed >> _HALF)
    differ = _changes(high[order]) | _changes(low[order])
    unsettled = same_user & (differ | (~_changes(packed) & _changes(keys[order])))
    if not unsettled.any():
        return order
    groups = np.unique(packed[unsettled] >> _HALF)
    at = packed >> _HALF
    inside = np.flatnonzero(groups[np.minimum(np.searchsorted(groups, at), len(groups) - 1)] == at)
    rows = order[inside]
    order[inside] = rows[np.lexsort((keys[rows], priority[rows], low[rows], high[rows]))]
    return order


def _changes(values: U64) -> NDArray[np.bool_]:
    """True at the first element and wherever an element differs from the one before it."""
    out = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=out[1:])
    return out


def _rank(first: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Position of each row within its group, whose first rows are marked."""
    starts = np.flatnonzero(first)
    return np.arange(len(first)) - np.repeat(starts, np.diff(np.append(starts, len(first))))


def _sum_by(keys: U64, counts: I64) -> tuple[U64, I64]:
    """Sorted distinct keys and the sum of counts of each."""
    if not len(keys):
        return keys, counts
    if counts.min() == counts.max():  # nearly always all ones: sort the keys alone
        ordered = np.sort(keys)
        starts = np.flatnonzero(_changes(ordered))
        return ordered[starts], np.diff(np.append(starts, len(ordered))) * counts[0]
    order = np.argsort(keys)
    ordered = keys[order]
    starts = np.flatnonzero(_changes(ordered))
    return ordered[starts], np.add.reduceat(counts[order], starts)
