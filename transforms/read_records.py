"""Read records of files as Arrow batches.

In:  an `InputPlan`, made and checked on the driver (`plan_records`).
Out: a PCollection of pyarrow.RecordBatch with plan.schema, exact and private.

    plan = plan_records(["data/*.parquet"], Source(ids=("user_id", "url")))      # raises InputError
    batches = pipeline | ReadRecords(plan)

Work is split by file, by Parquet row groups, and by byte ranges of uncompressed lines; each part is read by
itself, so any worker may read any of them again. Rejected records are counted (counters `rejected` and
one for each reason); with Source(keep_rejected=True) the transform returns two collections, `records`
and `rejected` (batches of REJECTED_SCHEMA, private, for the operator alone). The pipeline fails only where
they are more than `limits` allow of all that was read.
"""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics import Metrics

from hushgram.inputs import (
    Check,
    InputPlan,
    Limits,
    RecordCounts,
    Source,
    WorkItem,
    plan_inputs,
    read_item,
)
from hushgram.transforms.files import match_files, open_file
from hushgram.transforms.shuffle.combining import CheckTallies

__all__ = ["PROGRESS_FILE", "TICK", "ReadRecords", "WriteRejectedRecords", "plan_records", "read_records"]


#: Environment variable with the path of a local file to which readers append a TICK for each batch. The
#: progress display of the local runner sets it; worker processes inherit it.
PROGRESS_FILE = "HUSHGRAM_PROGRESS_FILE"
#: rows, rejected rows, bytes of input; small enough that an append is atomic
TICK = struct.Struct("<qqq")

_NAMESPACE = "hushgram"
# A runner keeps every counter; reasons hold numbers ("7 fields instead of 2"), so they could be many.
_MAX_REASONS = 50


def plan_records(paths: Iterable[str], source: Source) -> InputPlan:
    """List the files and check all of them; every problem is an `InputError` that names the file.

    Args:
        paths: paths, patterns such as ``data/*.parquet``, and directories.
        source: which columns to read, and how.
    """
    return plan_inputs(match_files(paths), source, open_file)


def read_records(pipeline: beam.Pipeline, reader: ReadRecords, rejected_records: str | None = None) -> Any:
    """Return the records of a plan; rejected ones are written to ``rejected_records``, if it is given."""
    plan, read = reader.plan, pipeline | "Read" >> reader
    if not plan.source.keep_rejected:
        return read
    if rejected_records is not None:
        _ = read.rejected | "WriteRejected" >> WriteRejectedRecords(rejected_records)
    return read.records


class ReadRecords(beam.PTransform):
    """Read all items of a plan; see the module for what comes out.

    Where more is rejected than ``limits`` allow, or too little is there, the pipeline fails with an `InputError`. Once
    the transform is applied, ``checked`` is a collection that has an element when all is read and within the limits:
    what is published in the same pipeline waits for it.
    """

    def __init__(self, plan: InputPlan, limits: Limits | None = None) -> None:
        super().__init__()
        self.plan = plan
        self.checked: Any = None
        self._check = Check.of(plan, limits or Limits())

    def expand(self, begin: Any) -> Any:
        common = dataclasses.replace(self.plan, items=(), files=())
        read = (
            begin
            | "ListItems" >> beam.Create(self.plan.items, reshuffle=True).with_output_types(WorkItem)
            | "ReadItem" >> beam.ParDo(_ReadItem(common)).with_outputs("rejected", "tally", main="records")
        )
        read.records.element_type = pa.RecordBatch
        self.checked = read.tally | "CheckRead" >> CheckTallies(self._check)
        return read if self.plan.source.keep_rejected else read.records

    def display_data(self) -> dict[str, Any]:
        # Patterns and columns are public; sizes and row counts are not shown.
        return {"columns": ", ".join(self.plan.source.names), "formats": ", ".join(self.plan.formats)}


class _ReadItem(beam.DoFn):
    """WorkItem → batches; counts accepted and rejected records."""

    def __init__(self, plan: InputPlan) -> None:
        self._plan = plan

    def setup(self) -> None:
        self._rows = Metrics.counter(_NAMESPACE, "rows")
        self._bytes = Metrics.counter(_NAMESPACE, "bytes")
        self._rejected = Metrics.counter(_NAMESPACE, "rejected")
        self._reasons: set[str] = set()

    def process(self, item: WorkItem) -> Iterator[Any]:
        tally = RecordCounts()
        for chunk in read_item(item, self._plan, open_file):
            tally.read(chunk, item)
            rejected = sum(chunk.rejected.values())
            self._rows.inc(chunk.batch.num_rows)
            self._bytes.inc(chunk.size)
            if rejected:
                self._rejected.inc(rejected)
                for reason, count in chunk.rejected.items():
                    self._reasons.add(reason)
                    shown = reason if len(self._reasons) <= _MAX_REASONS else "other reasons"
                    Metrics.counter(_NAMESPACE, f"rejected: {shown}").inc(count)
            _tick(chunk.batch.num_rows, rejected, chunk.size)
            if chunk.rejected_records is not None:
                yield beam.pvalue.TaggedOutput("rejected", chunk.rejected_records)
            if chunk.batch.num_rows:
                yield chunk.batch
        yield beam.pvalue.TaggedOutput("tally", tally)


def _tick(rows: int, rejected: int, size: int) -> None:
    """Report to the local progress display, if there is one. A display that is gone is not an error."""
    path = os.environ.get(PROGRESS_FILE)
    if path is None:
        return
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, TICK.pack(rows, rejected, size))
        finally:
            os.close(file)
    except OSError:
        pass


class WriteRejectedRecords(beam.PTransform):
    """Batches of REJECTED_SCHEMA → JSON lines at `path`. They hold private data: keep them where the input is."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def expand(self, rejected: Any) -> Any:
        return (
            rejected
            | "AsJson" >> beam.FlatMap(_json_lines).with_output_types(str)
            | "Write" >> beam.io.WriteToText(self._path, num_shards=1, shard_name_template="")
        )


def _json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    for row in batch.to_pylist():
        row["record"] = row["record"].decode("utf-8", "backslashreplace")
        yield json.dumps(row, ensure_ascii=False)
