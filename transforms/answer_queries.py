"""Exact answers to the queries of a stream: parts of the bounded data in, an array of answers per stream out.

In:  `Histogram` parts of bounded contributions, by key ("keys") and by packed record ("records").
Out: (stream, (sequence numbers, exact answers)), one element for each stream. Exact and private: the next
     stage must be a mechanism.

Each worker counts what it holds into one vector of whole numbers (`QueryPlan`), vectors are summed, and the
answers are read off the sum: one pass over the data however many queries there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue
from numpy.typing import NDArray

from hushgram.exact.histogram import Histogram
from hushgram.sensitivity import ExactVector
from hushgram.svt.exact_answers import QueryPlan, pack_records, unpack_records
from hushgram.transforms.shuffle.vectors import OneWindow, SumParts

__all__ = ["RECORD", "AnswerQueries", "PackRecords"]

#: The column in which packed records travel to the bounding stage.
RECORD = "record"

I64 = NDArray[np.int64]


class PackRecords(beam.PTransform):
    """Arrow batches → batches of (user, record), a record being the key and the queried columns as bytes.

    Without ``user`` the batches have the record alone.
    """

    def __init__(self, schema: pa.Schema, user: str | None) -> None:
        super().__init__()
        self._schema, self._user = schema, user

    def expand(self, batches: Any) -> Any:
        packed = batches | "Pack" >> beam.Map(_pack, self._schema, self._user)
        packed.element_type = pa.RecordBatch
        return packed


def _pack(batch: pa.RecordBatch, schema: pa.Schema, user: str | None) -> pa.RecordBatch:
    columns = {} if user is None else {user: batch.column(user)}
    packed = {**columns, RECORD: pack_records(batch, schema)}
    return pa.RecordBatch.from_pydict(packed, metadata=batch.schema.metadata)


class AnswerQueries(beam.PTransform):
    """{"keys": parts, "records": parts} → (stream, (sequence numbers, exact answers)).

    ``streams`` names the streams and the sequence numbers of their queries, in the order in which ``plan``
    has them. Either collection may be left out where no query needs it.
    """

    def __init__(self, plan: QueryPlan, streams: Sequence[tuple[str, I64 | range]]) -> None:
        super().__init__()
        self._plan, self._streams = plan, list(streams)

    def expand(self, parts: Mapping[str, Any]) -> Any:
        vectors = [
            collection
            | f"AllTime{name.title()}" >> OneWindow()
            | f"Count{name.title()}" >> beam.ParDo(_CountParts(self._plan.counting(), name))
            for name, collection in parts.items()
        ]
        return (
            vectors
            | "Together" >> beam.Flatten()
            | "Sum" >> SumParts(len(self._plan.zeros()))
            | "ReadOff"
            >> beam.FlatMap(_read_off, self._plan.reading(), self._streams)  # (stream, (numbers, answers))
        )

    def display_data(self) -> dict[str, Any]:
        return {"queries": self._plan.size, "streams": len(self._streams)}


def _read_off(
    total: ExactVector, plan: QueryPlan, streams: list[tuple[str, I64 | range]]
) -> Iterator[tuple[str, tuple[I64, ExactVector]]]:
    answers = plan.answers(total, [len(numbers) for _, numbers in streams])
    for (name, numbers), own in zip(streams, answers, strict=True):
        yield name, (np.asarray(numbers, dtype=np.int64), own)


class _CountParts(beam.DoFn):
    """Histogram parts → one vector for each bundle."""

    def __init__(self, plan: QueryPlan, form: str) -> None:
        self._plan, self._form = plan, form

    def start_bundle(self) -> None:
        self._vector: ExactVector | None = None

    def process(self, part: Histogram) -> None:
        counted = self._plan.zeros()
        if self._form == "keys":
            self._plan.add_keys(counted, part)
        elif len(part):
            records = unpack_records(part.texts, self._plan.record_schema)
            self._plan.add_records(counted, records, part.counts)
        one = ExactVector(counted, part.sensitivity)
        self._vector = one if self._vector is None else self._vector + one

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._vector is not None:
            window = GlobalWindow()
            yield WindowedValue(self._vector, window.max_timestamp(), (window,))
