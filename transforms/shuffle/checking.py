"""Input that cannot be meant, noticed when all of it was read: in the flow, so that every runner notices it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apache_beam as beam

from hushgram.inputs import Check, Tally
from hushgram.transforms.files import open_file

__all__ = ["CheckTallies"]


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
