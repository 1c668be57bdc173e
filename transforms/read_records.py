"""Read records of files as Arrow batches.

In:  an `InputPlan`, made and checked on the driver (`plan_records`).
Out: a PCollection of pyarrow.RecordBatch with plan.schema, exact and private; or a dict of collections, see below.

    plan = plan_records(["data/*.parquet"], Source(ids=("user_id", "url")))      # raises InputError
    batches = pipeline | ReadRecords(plan)

Work is split by file, by Parquet row groups, and by byte ranges of uncompressed lines; each part is read by
itself, so any worker may read any of them again. Reading is splittable: an engine knows the bytes of what is left, and
may give the blocks of a range of lines that nobody has begun to another worker.

Rejected records are counted; the pipeline fails only where they are more than `limits` allow of all that was read. With
Source(keep_rejected=True) the transform returns a dict of `records` and `rejected` (batches of REJECTED_SCHEMA,
private, for the operator alone).
"""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker

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
from hushgram.publishing import put_file
from hushgram.transforms.files import match_files, open_file
from hushgram.transforms.shuffle import coders as _coders  # noqa: F401 (registers the coders)
from hushgram.transforms.shuffle.combining import CheckTallies, Tally, operator_counter

__all__ = ["PROGRESS_FILE", "TICK", "ReadRecords", "WriteRejectedRecords", "plan_records", "read_records"]


#: Environment variable with the path of a local file to which readers append a TICK for each batch. The
#: progress display of the local runner sets it; worker processes inherit it.
PROGRESS_FILE = "HUSHGRAM_PROGRESS_FILE"
#: rows, rejected rows, bytes of input; small enough that an append is atomic
TICK = struct.Struct("<qqq")

# A runner keeps every counter; reasons hold numbers ("7 fields instead of 2"), so they could be many.
_MAX_REASONS = 50
_PARTS = beam.DoFn.RestrictionParam()  # the DoFn provides them itself


def plan_records(paths: Iterable[str], source: Source) -> InputPlan:
    """List the files and check all of them; every problem is an `InputError` that names the file.

    Args:
        paths: paths, patterns such as ``data/*.parquet``, and directories.
        source: which columns to read, and how.
    """
    return plan_inputs(match_files(paths), source, open_file)


def read_records(pipeline: beam.Pipeline, reader: ReadRecords, rejected_records: str | None = None) -> Any:
    """Return what a reader gives, without its rejected records, which are written to ``rejected_records`` if given."""
    read = pipeline | "Read" >> reader
    if not reader.plan.source.keep_rejected:
        return read
    rejected = read.pop("rejected")
    if rejected_records is not None:
        _ = rejected | "WriteRejected" >> WriteRejectedRecords(rejected_records)
    return read if len(read) > 1 else read["records"]


class ReadRecords(beam.PTransform):
    """Read all items of a plan; see the module for what comes out.

    Where more is rejected than ``limits`` allow, or too little is there, the pipeline fails with an `InputError`. With
    ``tallies`` that is left to the next stage: a dict of `records` and `tallies` comes out, and a release of it
    publishes nothing before all is read and within the limits. With ``counters`` the job has counters of exact
    figures: `rows`, `bytes`, `rejected` and one for each reason.
    """

    def __init__(
        self, plan: InputPlan, limits: Limits | None = None, *, tallies: bool = False, counters: bool = False
    ) -> None:
        super().__init__()
        self.plan = plan
        self._tallies, self._counters = tallies, counters
        self._check = Check.of(plan, limits or Limits())

    def expand(self, begin: Any) -> Any:
        common = dataclasses.replace(self.plan, items=(), files=())
        reading = beam.ParDo(_ReadItem(common, self._counters))
        read = (
            begin
            | "ListItems" >> beam.Create(self.plan.items, reshuffle=True).with_output_types(WorkItem)
            | "ReadItem" >> reading.with_outputs("rejected", "tally", main="records")
        )
        out = {"records": read.records}
        if self.plan.source.keep_rejected:
            out["rejected"] = read.rejected
        for batches in out.values():
            batches.element_type = pa.RecordBatch
        if self._tallies and self.plan.items:
            out["tallies"] = read.tally | "Limit" >> beam.Map(_limited, self._check).with_output_types(Tally)
        else:
            _ = read.tally | "CheckRead" >> CheckTallies(self._check)
        return out if len(out) > 1 else read.records

    def display_data(self) -> dict[str, Any]:
        # Patterns and columns are public; sizes and row counts are not shown.
        return {"columns": ", ".join(self.plan.source.names), "formats": ", ".join(self.plan.formats)}


def _limited(counts: RecordCounts, check: Check) -> Tally:
    return Tally(check, counts)


class _ReadItem(beam.DoFn, beam.transforms.core.RestrictionProvider):
    """WorkItem → batches; counts accepted and rejected records. A restriction is a range of the parts of an item."""

    def __init__(self, plan: InputPlan, counters: bool) -> None:
        self._plan, self._counters = plan, counters

    def setup(self) -> None:
        self._rows = operator_counter("rows", self._counters)
        self._bytes = operator_counter("bytes", self._counters)
        self._rejected = operator_counter("rejected", self._counters)
        self._reasons: set[str] = set()

    def initial_restriction(self, item: WorkItem) -> OffsetRange:
        return OffsetRange(0, len(self._parts(item)))

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, item: WorkItem, restriction: OffsetRange) -> int:
        return sum(part.size for part in self._parts(item)[restriction.start : restriction.stop])

    def _parts(self, item: WorkItem) -> list[WorkItem]:
        return item.parts(self._plan.source.block_bytes)

    def process(self, item: WorkItem, tracker: Any = _PARTS) -> Iterator[Any]:
        tally, parts = RecordCounts(), self._parts(item)
        at = tracker.current_restriction().start
        while tracker.try_claim(at):
            yield from self._read(parts[at], tally)
            at += 1
        yield beam.pvalue.TaggedOutput("tally", tally)

    def _read(self, item: WorkItem, tally: RecordCounts) -> Iterator[Any]:
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
                    operator_counter(f"rejected: {shown}", self._counters).inc(count)
            _tick(chunk.batch.num_rows, rejected, chunk.size)
            if chunk.rejected_records is not None:
                yield beam.pvalue.TaggedOutput("rejected", chunk.rejected_records)
            if chunk.batch.num_rows:
                yield chunk.batch


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
            | "Together" >> beam.combiners.ToList()
            | "Write" >> beam.Map(_write_private, self._path)
        )


def _write_private(lines: list[str], path: str) -> None:
    """Write lines to a file that only its owner may read."""
    content = "".join(f"{line}\n" for line in sorted(lines)).encode()
    if "://" not in path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        put_file(path, content, 0o600)
        return
    with FileSystems.create(path, mime_type="application/octet-stream") as file:
        file.write(content)


def _json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    for row in batch.to_pylist():
        row["record"] = row["record"].decode("utf-8", "backslashreplace")
        yield json.dumps(row, ensure_ascii=False)
