"""{"key": k}: how often one key occurs. One user changes it by at most min(L∞, C)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.exact.histogram import Histogram
from hushgram.exact.keys import fingerprints
from hushgram.svt.kinds.kind import I64, Counters, DataShape, QueryKind, read_text

__all__ = ["KeyQuery", "compact"]


@dataclass(frozen=True, slots=True)
class KeyQuery(QueryKind):
    """How often one key occurs."""

    name: ClassVar[str] = "key"
    fields: ClassVar[tuple[str, ...]] = ("key",)
    data: ClassVar[Literal["keys", "records"]] = "keys"

    key: str

    @classmethod
    def parse(cls, fields: Mapping[str, Any], where: str) -> Self:
        return cls(read_text(fields["key"], "key", where, numbers=True))

    def most(self, max_contributions: int, max_per_key: int) -> int:
        return min(max_per_key, max_contributions)

    @classmethod
    def counters(cls, queries: Sequence[tuple[int, KeyQuery]], shape: DataShape) -> Sequence[Counters]:
        return [_KeyCounters(queries, shape.texts)]


def compact(numbers: Sequence[int]) -> range | I64:
    """Ascending whole numbers as a range where they have no gaps: plans travel as pickles."""
    if numbers and numbers[-1] - numbers[0] == len(numbers) - 1:
        return range(numbers[0], numbers[-1] + 1)
    return np.array(numbers, dtype=np.int64)


class _KeyCounters(Counters):
    """A counter for each distinct key: found by text where texts travel anyway, else by fingerprint."""

    def __init__(self, queries: Sequence[tuple[int, KeyQuery]], texts: bool) -> None:
        self._queries: Any = compact([i for i, _ in queries])
        self._texts = texts
        self._wanted, self._slot = _distinct([query.key for _, query in queries], texts)
        self.size = len(self._wanted)

    def add(self, into: I64, rows: Histogram, counts: I64) -> None:
        if not self._texts:
            into += rows.counts_of(self._wanted)
            return
        slots = pc.index_in(rows.texts, value_set=self._wanted)
        held = slots.is_valid().to_numpy(zero_copy_only=False)
        np.add.at(into, slots.drop_null().to_numpy(), counts[held])

    def read(self, totals: I64, out: I64) -> None:
        out[np.asarray(self._queries, dtype=np.intp)] = totals[self._slot]

    def counting(self) -> Self:
        return self._without(_queries=range(0), _slot=np.zeros(0, dtype=np.uint32))

    def reading(self) -> Self:
        return self._without(_wanted=None)


def _distinct(texts: list[str], as_text: bool) -> tuple[Any, NDArray[np.uint32]]:
    """Distinct wanted keys (texts, or sorted fingerprints), and where each query finds its own."""
    if as_text:
        encoded = pa.array([text.encode() for text in texts], pa.large_binary()).dictionary_encode()
        return encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False).astype(np.uint32)
    wanted, slot = np.unique(fingerprints(pa.array(texts, pa.large_string())), return_inverse=True)
    return wanted, slot.astype(np.uint32)
