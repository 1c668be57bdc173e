"""Exact, private data: the sparse histogram as sorted arrays.

Nothing in this file is ever written or shown: these classes have no writer. Only a mechanism turns them into
something released.

Keys are integers here: at δ = 0 the 64-bit fingerprint; at δ > 0, where key text is released and two texts must
never be confused, the index into a `KeyTable` that is sorted by (fingerprint, text).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.contributions.keys import as_column, encode, hash_bytes, mix
from hushgram.contributions.sums import round_grains
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.sensitivity import CONSTANT, ONE_RECORD, UNBOUNDED, Exact, Sensitivity

__all__ = [
    "NOISE_SHARDS", "Histogram", "KeyTable", "changes", "range_ends", "stable_order", "sum_runs", "text_buffers",
]  # fmt: skip

#: Noise is drawn for each of so many ranges of the fingerprint, however the runner groups them. A job on large input
#: has more (`hushgram.transforms.shuffle.combining.Shards`).
NOISE_SHARDS = 256

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]


def range_ends(fingerprints: U64, ranges: range, number: int) -> list[int]:
    """Return where some of ``number`` equal ranges of the fingerprint, a power of two, begin and the last one ends."""
    shift = 65 - number.bit_length()
    ends: list[int] = np.searchsorted(
        fingerprints,
        np.array([place << shift for place in (*ranges, ranges.stop) if place < number], np.uint64),
    ).tolist()
    return ends if ranges.stop < number else [*ends, len(fingerprints)]


@dataclass(frozen=True)
class KeyTable:
    """Distinct key texts in the canonical order (fingerprint, bytes)."""

    fingerprints: U64
    texts: pa.LargeBinaryArray

    @classmethod
    def build(cls, texts: pa.LargeBinaryArray, prints: U64 | None = None) -> tuple[KeyTable, U64]:
        """Return the table of distinct ``texts``, and for each of them its place in it; ``prints`` where known."""
        prints = hash_bytes(texts) if prints is None else prints
        order = stable_order(prints)
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
        """Return one table of all texts, and for each table where its rows went.

        Tables are in order, so a stable sort of their fingerprints merges them, and equal texts come to lie side by
        side. Where two texts have one fingerprint, which is rare, all texts are told apart by their bytes first.
        """
        every = pa.concat_arrays([table.texts for table in tables])
        prints = np.concatenate([table.fingerprints for table in tables])
        order = np.argsort(prints, kind="stable")
        texts, first = every.take(pa.array(order)), changes(prints[order])
        same = pc.equal(texts.slice(1), texts.slice(0, max(len(texts) - 1, 0))).to_numpy(zero_copy_only=False)
        moved = np.empty(len(order), np.uint64)
        if bool(np.all(first[1:] | same)):
            moved[order] = (np.cumsum(first) - 1).astype(np.uint64)
            starts = np.flatnonzero(first)
            union = cls(prints[order[starts]], texts.take(pa.array(starts)))
        else:
            together = every.dictionary_encode()
            codes = together.indices.to_numpy(zero_copy_only=False)
            of_texts = np.empty(len(together.dictionary), np.uint64)
            of_texts[codes] = prints
            union, place = cls.build(together.dictionary, of_texts)
            moved = place[codes]
        return union, np.split(moved, np.cumsum([len(table.texts) for table in tables])[:-1])

    def shards(self, number: int = NOISE_SHARDS) -> list[KeyTable]:
        """Return so many ranges by the top bits of the fingerprint, empty ones included."""
        ends = range_ends(self.fingerprints, range(number), number)
        return [self.part(low, high) for low, high in pairwise(ends)]

    def part(self, low: int, high: int) -> KeyTable:
        """Return the rows [low, high)."""
        return KeyTable(self.fingerprints[low:high], self.texts.slice(low, high - low))

    def digest(self) -> bytes:
        """Return the SHA-256 of the texts."""
        return digest(*text_buffers(self.texts))

    def places(self, part: Histogram) -> NDArray[np.intp]:
        """Return the places of the keys of a histogram, all of which are in the table."""
        if changes(self.fingerprints).all():
            return np.searchsorted(self.fingerprints, part.fingerprints)
        found: NDArray[np.intp] = pc.index_in(part.texts, value_set=self.texts).to_numpy(zero_copy_only=False)
        return found

    def find(self, texts: pa.LargeBinaryArray) -> NDArray[np.intp]:
        """Return the place of each text in the table, or -1."""
        if len(self.texts) <= len(texts) or not changes(self.fingerprints).all():
            return pc.index_in(texts, value_set=self.texts).fill_null(-1).to_numpy().astype(np.intp)  # type: ignore[no-any-return]
        prints = hash_bytes(texts)  # cheaper than a hash table of a list that is longer than the batch
        places = np.minimum(np.searchsorted(self.fingerprints, prints), len(self.texts) - 1)
        same = pc.equal(self.texts.take(pa.array(places)), texts).to_numpy(zero_copy_only=False)
        return np.where(same, places, -1)

    def keep(self, used: NDArray[np.bool_]) -> tuple[KeyTable, U64]:
        """Return the rows marked in ``used``, and the new place of each old row (meaningless where unused)."""
        kept = np.flatnonzero(used)
        places = np.zeros(len(used), np.uint64)
        places[kept] = np.arange(len(kept), dtype=np.uint64)
        return KeyTable(self.fingerprints[kept], self.texts.take(pa.array(kept))), places


@dataclass(frozen=True)
class Histogram(Exact):
    """Exact counts of distinct keys, sorted by fingerprint (and text). A part has the sensitivity of the whole."""

    fingerprints: U64
    counts: I64
    texts: pa.LargeBinaryArray | None = None
    sensitivity: Sensitivity = UNBOUNDED

    @classmethod
    def empty(cls, *, texts: bool) -> Histogram:
        """Return a histogram without keys."""
        nothing = pa.array([], pa.large_binary()) if texts else None
        return cls(np.zeros(0, np.uint64), np.zeros(0, np.int64), nothing, CONSTANT)

    @classmethod
    def of_keys(
        cls, keys: U64, counts: I64, table: KeyTable | None, sensitivity: Sensitivity = UNBOUNDED
    ) -> Histogram:
        """Return the sum of ``counts`` by key."""
        if table is None:
            return cls(*_sum_by(keys, counts), None, sensitivity)
        rows = keys.view(np.int64)  # numpy converts unsigned indices first
        number = np.bincount(rows, minlength=len(table.fingerprints))
        places = np.flatnonzero(number)
        sums = number
        if not np.all(counts == 1):
            sums = np.zeros(len(number), np.int64)
            np.add.at(sums, rows, counts)
        texts = table.texts if len(places) == len(number) else table.texts.take(pa.array(places))
        return cls(table.fingerprints[places], sums[places].astype(np.int64, copy=False), texts, sensitivity)

    @classmethod
    def of_column(cls, keys: Any, *, texts: bool) -> Histogram:
        """Return the counts of a column of keys, where every row is a record of its own."""
        return cls.of_counts(keys, None, texts=texts, sensitivity=ONE_RECORD)

    @classmethod
    def of_counts(
        cls, keys: Any, counts: I64 | None, *, texts: bool, sensitivity: Sensitivity = UNBOUNDED
    ) -> Histogram:
        """Return the sum of ``counts`` (None: ones) by key, for a column of keys that may repeat."""
        encoded = encode(as_column(keys))
        ones = counts is None
        weights = np.ones(len(encoded.codes), np.int64) if counts is None else counts
        sums = np.zeros(len(encoded.values), np.int64)
        if ones:
            sums = np.bincount(encoded.codes, minlength=len(encoded.values)).astype(np.int64)
        else:
            np.add.at(sums, encoded.codes, weights)
        table, places = KeyTable.build(encoded.values) if texts else (None, hash_bytes(encoded.values))
        counted = np.flatnonzero(sums)
        return cls.of_keys(places[counted], sums[counted], table, sensitivity)

    @classmethod
    def merge(cls, parts: Iterable[Histogram]) -> Histogram:
        """Return the sum of parts that were bounded together."""
        found = list(parts)
        if len(found) == 1:
            return found[0]
        counts, sensitivity = np.concatenate([part.counts for part in found]), Exact.shared(found)
        if found[0].texts is None:
            prints = np.concatenate([part.fingerprints for part in found])
            return cls.of_keys(prints, counts, None, sensitivity)
        tables = [KeyTable(part.fingerprints, part.texts) for part in found]
        table, places = KeyTable.union(tables)
        return cls.of_keys(np.concatenate(places), counts, table, sensitivity)

    @classmethod
    def concat(cls, parts: Sequence[Histogram]) -> Histogram:
        """Return parts of rising ranges of fingerprints, without texts, one after another."""
        prints = np.concatenate([part.fingerprints for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        return cls(prints, counts, None, Exact.shared(parts))

    def shards(self, number: int = NOISE_SHARDS) -> list[Histogram]:
        """Return so many ranges by the top bits of the fingerprint, empty ones included."""
        ends, nothing = range_ends(self.fingerprints, range(number), number), self.part(0, 0)
        return [self.part(low, high) if high > low else nothing for low, high in pairwise(ends)]

    def part(self, low: int, high: int) -> Histogram:
        """Return the rows [low, high)."""
        texts = None if self.texts is None else self.texts.slice(low, high - low)
        return Histogram(self.fingerprints[low:high], self.counts[low:high], texts, self.sensitivity)

    def reduced(self, domain_bits: int) -> Histogram:
        """Return the histogram over the first ``domain_bits`` bits of the fingerprints: the cells of the domain."""
        if domain_bits == 64:
            return self
        # Keys of one privacy unit may share a cell, and whoever knows the hash can make them.
        cells = self.fingerprints >> np.uint64(64 - domain_bits)
        starts = np.flatnonzero(changes(cells))
        counts = np.add.reduceat(self.counts, starts) if len(starts) else self.counts
        return Histogram(cells[starts], counts, None, self.sensitivity.added_up())

    def aligned(self, domain_bits: int) -> Histogram:
        """Return the same with cells of a domain as the first bits of 64, of which `reduced` makes cells again."""
        prints = self.fingerprints << np.uint64(64 - domain_bits) if domain_bits < 64 else self.fingerprints
        return Histogram(prints, self.counts, None, self.sensitivity)

    def digest(self) -> bytes:
        """Return the SHA-256 of the keys and counts."""
        if not len(self):  # most shards of a small release
            return _digest_of_nothing(self.texts is not None)
        return self._digest()

    def _digest(self) -> bytes:
        if self.texts is None:
            return digest(self.fingerprints, self.counts)
        return digest(self.fingerprints, self.counts, *text_buffers(self.texts))

    def rounded(self, release_key: ReleaseKey) -> Histogram:
        """Round sums in grains to multiples of the granularity g, where no user bounds them.

        A key moves by at most ⌈d/g⌉ where its sum moves by d.
        """
        salt = release_key.source("rounding").words(1)[0]
        sums = round_grains(self.counts, mix(self.fingerprints ^ salt))
        kept = np.flatnonzero(sums)
        texts = None if self.texts is None else self.texts.take(pa.array(kept))
        return Histogram(self.fingerprints[kept], sums[kept], texts, self.sensitivity)

    def counts_of(self, wanted: U64) -> I64:
        """Return the count of each of the ``wanted`` fingerprints, 0 where there is none."""
        at, found = self._find(wanted)
        return np.where(found, self.counts[at], 0) if len(self) else np.zeros(len(wanted), np.int64)

    def has(self, wanted: U64) -> NDArray[np.bool_]:
        """Return which of the ``wanted`` fingerprints have a count."""
        return self._find(wanted)[1]

    def _find(self, wanted: U64) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Return where the ``wanted`` fingerprints are or would be, and which are there."""
        if not len(self):
            return np.zeros(len(wanted), np.intp), np.zeros(len(wanted), np.bool_)
        at = np.minimum(np.searchsorted(self.fingerprints, wanted), len(self) - 1)
        return at, self.fingerprints[at] == wanted

    def __len__(self) -> int:
        return len(self.fingerprints)


@cache
def _digest_of_nothing(texts: bool) -> bytes:
    return Histogram.empty(texts=texts)._digest()


def text_buffers(texts: pa.LargeBinaryArray) -> tuple[I64, NDArray[np.uint8]]:
    """Return the lengths and bytes of a slice of texts, without what lies around it."""
    if not len(texts):
        return np.zeros(0, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.diff(offsets), np.frombuffer(texts.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]


def changes(values: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Return True at the first element and wherever an element differs from the one before it."""
    out = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=out[1:])
    return out


def stable_order(keys: U64) -> NDArray[np.intp]:
    """Return np.argsort(keys, kind="stable"), several times faster.

    By 16 bits numpy has a radix sort. Two of them settle the first 32 bits; few keys share those and differ behind,
    and what is nearly sorted its stable sort finishes in one pass. `take` gathers faster than an index does.
    """
    rest = max(int(keys.max(initial=0)).bit_length() - 32, 0)
    first = (keys >> np.uint64(rest)).astype("<u4").view("<u2").reshape(-1, 2)
    order = np.argsort(first[:, 0], kind="stable")
    order = order.take(np.argsort(first[:, 1].take(order), kind="stable"))
    return order.take(np.argsort(keys.take(order), kind="stable"))


def _sum_by(keys: U64, counts: I64) -> tuple[U64, I64]:
    """Return sorted distinct keys and the sum of counts of each."""
    order = stable_order(keys)
    ordered = keys.take(order)
    starts = np.flatnonzero(changes(ordered))
    return ordered[starts], sum_runs(counts, order, starts)


def sum_runs(counts: I64, order: NDArray[np.intp], starts: NDArray[np.intp]) -> I64:
    """Return the sums of ``counts`` in this order, from each start to the next."""
    if counts.ndim == 1 and bool((counts == 1).all()):
        return np.diff(starts, append=len(counts))
    return np.add.reduceat(counts.take(order, axis=0), starts) if len(starts) else counts
