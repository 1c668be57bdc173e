"""Sums of counters: what several stages share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import numpy as np

from hushgram.sensitivity import CONSTANT, ExactVector
from hushgram.transforms.shuffle.windows import OneWindow

__all__ = ["SumParts", "SumVectors"]


class SumParts(beam.PTransform):
    """Exact vectors of ``size`` counters, in any windows → their sum: one element, also where there are none."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def expand(self, parts: Any) -> Any:
        return parts | "Together" >> OneWindow() | "Sum" >> beam.CombineGlobally(SumVectors(self._size))


class SumVectors(beam.CombineFn):
    """Sum of vectors of one length; zeros where there is nothing."""

    def __init__(self, size: int) -> None:
        self._size = size

    def create_accumulator(self) -> ExactVector:
        return ExactVector(np.zeros(self._size, dtype=np.int64), CONSTANT)

    def add_input(self, total: ExactVector, vector: ExactVector) -> ExactVector:
        return total + vector

    def merge_accumulators(self, totals: Iterable[ExactVector]) -> ExactVector:
        total = self.create_accumulator()
        for one in totals:
            total = total + one
        return total

    def extract_output(self, total: ExactVector) -> ExactVector:
        return total
