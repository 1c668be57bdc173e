"""What several stages share: sums of counters, digests, one window for everything, and the check of what was read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import FixedWindows, GlobalWindows, Sessions

from hushgram.errors import ParameterError
from hushgram.inputs import Check, Tally
from hushgram.noise.entropy import digest
from hushgram.sensitivity import CONSTANT, ExactVector
from hushgram.transforms.files import open_file

__all__ = ["CheckTallies", "DigestAll", "OneWindow", "SumParts", "SumVectors"]


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


class DigestAll(beam.PTransform):
    """Digests of parts, in any order → one digest of them all; exact and private."""

    def expand(self, digests: Any) -> Any:
        return digests | "Gather" >> beam.combiners.ToList() | "Digest" >> beam.Map(_digest_sorted)


def _digest_sorted(digests: list[bytes]) -> bytes:
    return digest(*sorted(digests))


# One window for everything: a release has no windows.
#
# A mechanism that ran once for each window would spend its ε in each of them, bounds on a user's contributions
# would hold in each of them alone, and equal windows would get equal noise. So every stage that adds up or
# draws noise puts its input into the global window first, whatever windows and triggers it came with. Windows
# that overlap are refused: Beam repeats an element for each of its windows, and one record would count twice.

#: Window functions that give every element exactly one window.
_DISJOINT = (GlobalWindows, FixedWindows, Sessions)


class OneWindow(beam.PTransform):
    """The same elements in the global window, with the default trigger."""

    def expand(self, elements: Any) -> Any:
        windows = elements.windowing.windowfn
        if not isinstance(windows, _DISJOINT):
            raise ParameterError(
                f"{self.label}: the input is in {type(windows).__name__}, where a record may count several "
                "times; release from data that are not in overlapping windows"
            )
        whole = elements | "AllTime" >> beam.WindowInto(GlobalWindows())
        whole.element_type = elements.element_type
        return whole


class CheckTallies(beam.PTransform):
    """Tallies of parts → one element once all of them are within the limits; an `InputError` where they are not.

    What is published waits for that element. It says nothing else.
    """

    def __init__(self, check: Check) -> None:
        super().__init__()
        self._check = check

    def expand(self, tallies: Any) -> Any:
        whole = tallies | "AddUp" >> beam.CombineGlobally(_AddUp())
        return whole | "Check" >> beam.Map(_checked, self._check).with_output_types(bool)


class _AddUp(beam.CombineFn):
    def create_accumulator(self) -> Tally:
        return Tally()

    def add_input(self, whole: Tally, part: Tally) -> Tally:
        whole.add(part.rows, part.bad, part.places)
        return whole

    def merge_accumulators(self, parts: Iterable[Tally]) -> Tally:
        whole = Tally()
        for part in parts:
            self.add_input(whole, part)
        return whole

    def extract_output(self, whole: Tally) -> Tally:
        return whole


def _checked(tally: Tally, check: Check) -> bool:
    check(tally, open_file)
    return True
