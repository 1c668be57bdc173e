"""Counters for many half-open intervals of an ordered set: what prefixes and ranges share.

All ends, sorted, cut the set into cells; a part adds its counts by cell, and an answer is the difference of
two running sums. So 100,000 ranges cost one sort, not 100,000 passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.svt.kinds.kind import I64, Counters

__all__ = ["IntervalCounters", "storage_type"]


class IntervalCounters(Counters):
    """Counters between the sorted ends of intervals (query, low, high); high None is "no end"."""

    def __init__(self, intervals: Sequence[tuple[int, Any, Any]], ordered: pa.DataType) -> None:
        self._ordered = ordered
        ends = {low for _, low, _ in intervals} | {high for _, _, high in intervals if high is not None}
        self._ends = sorted(ends)
        place = {end: i for i, end in enumerate(self._ends)}
        self._queries = np.array([i for i, _, _ in intervals], dtype=np.intp)
        # the running sum over the first j + 1 cells counts all values below end j
        self._low = np.array([place[low] + 1 for _, low, _ in intervals], dtype=np.intp)
        last = len(self._ends) + 1
        self._high = np.array(
            [last if high is None else place[high] + 1 for _, _, high in intervals], dtype=np.intp
        )
        self.size = len(self._ends) + 1

    def add_values(self, into: I64, values: Any, counts: I64) -> None:
        """Count values of the ordered type; nulls count nowhere."""
        if values.null_count:
            valid = values.is_valid()
            values, counts = values.filter(valid), counts[valid.to_numpy(zero_copy_only=False)]
        np.add.at(into, self._cell(values), counts)

    def _cell(self, values: Any) -> NDArray[np.intp]:
        """How many ends are at most each value."""
        if self._ordered != pa.large_binary():
            numbers = _numbers(values, self._ordered)
            return np.searchsorted(np.array(self._ends, dtype=numbers.dtype), numbers, side="right")
        ends = pa.array(self._ends, pa.large_binary())
        both = pa.concat_arrays([ends, values.cast(pa.large_binary())])
        order = pc.array_sort_indices(both).to_numpy()  # stable: an end comes before an equal value
        cells = np.empty(len(both), dtype=np.intp)
        cells[order] = np.cumsum(order < len(ends))
        return cells[len(ends) :]

    def read(self, totals: I64, out: I64) -> None:
        sums = np.concatenate([[0], np.cumsum(totals)])
        out[self._queries] = sums[self._high] - sums[self._low]


def _numbers(values: Any, ordered: pa.DataType) -> NDArray[Any]:
    """Values of a column in the type whose order decides."""
    stored = values.cast(storage_type(values.type)) if pa.types.is_temporal(values.type) else values
    numbers: NDArray[Any] = stored.cast(ordered).to_numpy(zero_copy_only=False)
    return numbers


def storage_type(kind: pa.DataType) -> pa.DataType:
    """The whole numbers that hold a date or time."""
    return pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()
