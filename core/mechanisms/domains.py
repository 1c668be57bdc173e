"""Which cell of a finite public domain a key belongs to, and queries that name cells.

Three kinds: a list of keys (`KeyDomain`; also the heavy keys of a released sketch), buckets of hashed keys
(`BucketDomain`), and ranges of a numeric key (`RangeDomain`). A key outside the domain belongs to no cell: what
it counted is left out before any mechanism sees it, so ‖x − x'‖₁ ≤ C holds on the cells as it did on all
keys.
"""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import canonical, fingerprints
from hushgram.errors import ParameterError
from hushgram.mechanisms.pmw.workload import GRID, Domain, to_grid
from hushgram.sensitivity import ExactVector

__all__ = ["BucketDomain", "FiniteDomain", "KeyDomain", "RangeDomain"]

_KINDS = "keys, weights, prefix, between, cells, dense or all"


class FiniteDomain(ABC):
    """A finite domain: labels of its cells, counts of a histogram by cell, and rows of query weights."""

    #: whether counting needs the text of keys, not only their fingerprints
    texts = False
    #: whether keys are numbers, of which equal ones are as good as others: then users are bounded by records
    numeric = False

    def __init__(self, labels: Sequence[str]) -> None:
        self.domain = Domain(tuple(labels))

    def __len__(self) -> int:
        return len(self.domain)

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each cell."""
        return self.domain.labels

    @abstractmethod
    def count(self, part: Histogram) -> ExactVector:
        """Return the exact counts of a part of the bounded histogram, by cell."""

    def keep(self, keys: Any) -> tuple[NDArray[np.bool_], pa.Array | None]:
        """Return which keys of a column belong to some cell; and those as cells, where users are bounded by cell."""
        return np.ones(len(keys), dtype=np.bool_), None

    @abstractmethod
    def positions(self, keys: Sequence[str]) -> list[int]:
        """Return the cell of each key; a key in no cell is an error."""

    def row(self, query: Mapping[str, Any], name: str) -> NDArray[np.uint16]:
        """Return grid weights of a query such as {keys: [a, b]}, {weights: {a: 0.5}} or {prefix: "x"}."""
        kinds = [kind for kind in query if kind != "id"]
        if len(kinds) != 1:
            raise ParameterError(
                f"{name}: must have exactly one of {_KINDS}, got {', '.join(kinds) or 'none'}"
            )
        builders: dict[str, Callable[[Any], NDArray[np.uint16]]] = {
            "keys": self._keys,
            "weights": self._weights,
            "prefix": self._prefix,
            "between": self._between,
            "cells": self._cells,
            "dense": self._dense,
            "all": lambda _: np.full(len(self), GRID, dtype=np.uint16),
        }
        if kinds[0] not in builders:
            raise ParameterError(f"{name}: no kind of query {kinds[0]!r}; known are {_KINDS}")
        try:
            return builders[kinds[0]](query[kinds[0]])
        except ParameterError as problem:
            raise ParameterError(f"{name}: {str(problem).removeprefix('query: ')}") from None

    def _keys(self, keys: Any) -> NDArray[np.uint16]:
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise ParameterError(f"keys must be a list of texts, got {keys!r:.80}")
        out = np.zeros(len(self), dtype=np.uint16)
        out[self.positions(keys)] = GRID
        return out

    def _weights(self, weights: Any) -> NDArray[np.uint16]:
        if not isinstance(weights, dict):
            raise ParameterError(f'weights must be an object such as {{"a": 0.5}}, got {weights!r:.80}')
        out = np.zeros(len(self), dtype=np.uint16)
        out[self.positions(list(weights))] = to_grid(_numbers(list(weights.values())))
        return out

    def _prefix(self, prefix: Any) -> NDArray[np.uint16]:
        if not isinstance(prefix, str) or not isinstance(self, KeyDomain) or self.hashed:
            raise ParameterError("prefix needs a text, and a domain whose keys are known by their text")
        return np.array([GRID * label.startswith(prefix) for label in self.labels], dtype=np.uint16)

    def _between(self, ends: Any) -> NDArray[np.uint16]:
        raise ParameterError("between needs a domain of ranges; set domain.edges")

    def _cells(self, cells: Any) -> NDArray[np.uint16]:
        if not isinstance(cells, list) or not all(type(i) is int and 0 <= i < len(self) for i in cells):
            raise ParameterError(
                f"cells must be a list of numbers from 0 to {len(self) - 1}, got {cells!r:.80}"
            )
        out = np.zeros(len(self), dtype=np.uint16)
        out[cells] = GRID
        return out

    def _dense(self, weights: Any) -> NDArray[np.uint16]:
        if not isinstance(weights, list) or len(weights) != len(self):
            raise ParameterError(f"dense must be a list of {len(self)} weights, one for each cell")
        return to_grid(_numbers(weights))


def _numbers(values: list[Any]) -> NDArray[np.float64]:
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        raise ParameterError("weights must be numbers from 0 to 1")
    return np.array(values, dtype=np.float64)


class KeyDomain(FiniteDomain):
    """One cell for each key of a public list, known by fingerprint; ``bits`` of it where a sketch has fewer.

    >>> cells = KeyDomain.of(["b", "a"])
    >>> cells.count(Histogram.of_column(["a", "a", "z"], texts=False)).values.tolist()
    [0, 2]
    """

    def __init__(
        self, labels: Sequence[str], prints: NDArray[np.uint64], bits: int = 64, *, hashed: bool = False
    ) -> None:
        super().__init__(labels)
        self.prints, self.bits, self.hashed = prints, bits, hashed
        if len(np.unique(prints)) != len(prints):
            # Both would count the same records, and a user would count twice.
            raise ParameterError("Domain: two keys of the list share a fingerprint; leave one of them out")

    @classmethod
    def of(cls, keys: Sequence[str]) -> KeyDomain:
        """Make the domain of these key texts."""
        Domain(tuple(keys))  # says what is wrong with an empty list or a key listed twice
        return cls(keys, fingerprints(list(keys)))

    @classmethod
    def of_heavy(cls, prints: NDArray[np.uint64], bits: int) -> KeyDomain:
        """Make the domain of the hashed keys of a sketch released at δ = 0; their labels are hexadecimal."""
        digits = -(-bits // 4)
        return cls([f"#{int(value):0{digits}x}" for value in prints], prints, bits, hashed=True)

    def count(self, part: Histogram) -> ExactVector:
        return ExactVector(part.counts_of(self._counted), part.sensitivity)

    def keep(self, keys: Any) -> tuple[NDArray[np.bool_], pa.Array | None]:
        cells = fingerprints(keys) >> np.uint64(64 - self.bits)
        inside = np.isin(cells, self.prints)
        if not self.hashed:
            return inside, None
        order = np.argsort(self.prints)
        found = order[np.searchsorted(self.prints[order], cells[inside])]
        return inside, pa.array(self.labels, pa.string()).take(pa.array(found))

    @cached_property
    def _counted(self) -> NDArray[np.uint64]:
        """The fingerprints that `keep` leaves: of keys, or of the names of cells."""
        return fingerprints(list(self.labels)) if self.hashed else self.prints

    @cached_property
    def _places(self) -> dict[int, int]:
        return {int(value): i for i, value in enumerate(self.prints)}

    def positions(self, keys: Sequence[str]) -> list[int]:
        if not self.hashed:
            return [self.domain.position(key) for key in keys]
        out = []
        for key in keys:
            value = fingerprints([key])[0] >> np.uint64(64 - self.bits)
            place = self.domain.index.get(key, self._places.get(int(value)))
            if place is None:
                raise ParameterError(
                    f"query: key {key[:80]!r} is not among the {len(self)} keys of the domain"
                )
            out.append(place)
        return out


class BucketDomain(FiniteDomain):
    """``count`` buckets of keys by fingerprint; a query for a key asks for its whole bucket."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ParameterError(f"Domain: buckets must be at least 1, got {count}")
        super().__init__([str(i) for i in range(count)])

    def _of(self, prints: NDArray[np.uint64]) -> NDArray[np.int64]:
        high = prints >> np.uint64(32)
        return ((high * np.uint64(len(self))) >> np.uint64(32)).astype(np.int64)

    def count(self, part: Histogram) -> ExactVector:
        out = np.zeros(len(self), dtype=np.int64)
        np.add.at(out, self._of(part.fingerprints), part.counts)
        return ExactVector(out, part.sensitivity.added_up())

    def positions(self, keys: Sequence[str]) -> list[int]:
        return [int(i) for i in self._of(fingerprints(list(keys)))] if len(keys) else []


class RangeDomain(FiniteDomain):
    """Ranges [e₀, e₁), [e₁, e₂), … of a numeric key; a key that is not a number, or outside, has no cell.

    >>> RangeDomain([0, 10, 20]).row({"between": [5, 20]}, "query")[0] == GRID // 2
    np.True_
    """

    texts = numeric = True

    def __init__(self, edges: Sequence[float]) -> None:
        rising = all(low < high for low, high in pairwise(edges))
        if len(edges) < 2 or not rising or not all(np.isfinite(edges)):
            raise ParameterError("Domain: edges must be two or more rising numbers")
        self.edges = [float(edge) for edge in edges]
        super().__init__([f"[{low:g}, {high:g})" for low, high in pairwise(self.edges)])

    def count(self, part: Histogram) -> ExactVector:
        out = np.zeros(len(self), dtype=np.int64)
        if len(part):
            np.add.at(out, *self._inside(_parsed(part.texts), part.counts))
        return ExactVector(out, part.sensitivity.added_up())

    def keep(self, keys: Any) -> tuple[NDArray[np.bool_], pa.Array | None]:
        values = _parsed(canonical(keys))
        return (values >= self.edges[0]) & (values < self.edges[-1]), None

    def _inside(
        self, values: NDArray[np.float64], counts: NDArray[np.int64]
    ) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        place = np.searchsorted(self.edges, values, side="right") - 1
        keep = (place >= 0) & (place < len(self)) & np.isfinite(values)
        return place[keep], counts[keep]

    def positions(self, keys: Sequence[str]) -> list[int]:
        out = []
        for key in keys:
            value = _parsed(pa.array([key.encode()], pa.large_binary()))[0]
            place = bisect.bisect_right(self.edges, value) - 1 if np.isfinite(value) else -1
            if not 0 <= place < len(self):
                raise ParameterError(f"query: key {key[:80]!r} is not in the domain's ranges")
            out.append(place)
        return out

    def _between(self, ends: Any) -> NDArray[np.uint16]:
        """Weigh the cells inside [low, high); a cell that is cut counts by the share of its length."""
        numbers = isinstance(ends, list) and len(ends) == 2 and all(isinstance(e, int | float) for e in ends)
        if not numbers or not ends[0] <= ends[1]:
            raise ParameterError(f"between must be [low, high], got {ends!r:.80}")
        first, last = (
            min(max(end, self.edges[0]), self.edges[-1]) for end in ends
        )  # as floats, however large
        low, high = np.array(self.edges[:-1]), np.array(self.edges[1:])
        inside = np.clip(np.minimum(high, last) - np.maximum(low, first), 0, None)
        return to_grid(np.minimum(inside / (high - low), 1.0))


def _parsed(texts: pa.LargeBinaryArray | None) -> NDArray[np.float64]:
    """Return numbers from key texts; nan where there is none."""
    if texts is None:
        raise ParameterError("Domain: ranges need the text of keys")
    utf8 = pc.if_else(
        pc.match_substring_regex(texts, rb"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*$"), texts, b"nan"
    )
    return np.asarray(pc.utf8_trim_whitespace(utf8.cast(pa.large_string())).cast(pa.float64()))
