"""Sums of counters: what several stages share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from hushgram.transforms.shuffle.windows import OneWindow

__all__ = ["SumParts", "SumVectors"]

I64 = NDArray[np.int64]


class SumParts(beam.PTransform):
    """Vectors of ``size`` counters, in any windows → their sum: exactly one element, also where there are none."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def expand(self, parts: Any) -> Any:
        return parts | "Together" >> OneWindow() | "Sum" >> beam.CombineGlobally(SumVectors(self._size))


class SumVectors(beam.CombineFn):
    """Sum of vectors of one length; zeros where there is nothing."""

    def __init__(self, size: int) -> None:
        self._size = size

    def create_accumulator(self) -> I64:
        return np.zeros(self._size, dtype=np.int64)

    def add_input(self, total: I64, vector: I64) -> I64:
        return total + vector

    def merge_accumulators(self, totals: Iterable[I64]) -> I64:
        total = self.create_accumulator()
        for one in totals:
            total = total + one
        return total

    def extract_output(self, total: I64) -> I64:
        return total
