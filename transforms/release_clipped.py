"""The clipping stage: parts of bounded values in, one released bound with sum and count out.

In:  `Histogram` parts whose texts are packed values of one numeric column
     (see `hushgram.mechanisms.svt.exact_answers`).
Out: one `Clipped`. This is public.

Values are counted by cell of the public grid, in vectors that add up; the mechanism runs once, on the sum,
with noise that follows from the release key and the exact numbers.
"""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc

from hushgram.contributions.histogram import Histogram
from hushgram.mechanisms.clipping import (
    ClipParams,
    Clipped,
    ClipTally,
    count_cells,
    release_clipped,
    to_multiples,
)
from hushgram.mechanisms.svt.exact_answers import unpack_records
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import show
from hushgram.sensitivity import ExactVector, PrivacyUnit
from hushgram.transforms.shuffle.combining import SumParts

__all__ = ["KeepNumbers", "ReleaseClipped"]


class KeepNumbers(beam.PTransform):
    """Arrow batches → the rows whose ``column`` holds a number; nulls and NaN count nowhere."""

    def __init__(self, column: str) -> None:
        super().__init__()
        self._column = column

    def expand(self, batches: Any) -> Any:
        kept = batches | "Keep" >> beam.Map(_keep, self._column)
        kept.element_type = pa.RecordBatch
        return kept


def _keep(batch: pa.RecordBatch, column: str) -> pa.RecordBatch:
    values = batch.column(column)
    valid = pc.is_valid(values)
    if pa.types.is_floating(values.type):
        valid = pc.and_(valid, pc.fill_null(pc.invert(pc.is_nan(values)), False))
    return batch.filter(valid)


class ReleaseClipped(beam.PTransform):
    """Bounded values of one column → `Clipped`."""

    def __init__(
        self, params: ClipParams, schema: pa.Schema, release_key: ReleaseKey, unit: PrivacyUnit = "user"
    ) -> None:
        super().__init__()
        self._params, self._schema, self._release_key, self._unit = params, schema, release_key, unit

    def expand(self, parts: Any) -> Any:
        return (
            parts
            | "CountByBound" >> beam.Map(_count, self._params, self._schema)
            | "Sum" >> SumParts(3 * (len(self._params.bounds) + 1))
            | "Release"
            >> beam.Map(_release, self._params, self._release_key, self._unit).with_output_types(Clipped)
        )

    def display_data(self) -> dict[str, Any]:
        return {"epsilon": show(self._params.epsilon), "max_contributions": self._params.max_contributions}


def _count(part: Histogram, params: ClipParams, schema: pa.Schema) -> ExactVector:
    column = unpack_records(part.texts, schema).column(0).combine_chunks()
    return count_cells(to_multiples(column, params), part.counts, params, part.sensitivity)


def _release(vector: ExactVector, params: ClipParams, release_key: ReleaseKey, unit: PrivacyUnit) -> Clipped:
    return release_clipped(ClipTally.of_vector(vector, params), params, release_key, unit)
