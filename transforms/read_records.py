"""Records of files as Arrow batches: local paths, gs://, s3:// and whatever else Beam's file systems know.

In:  an `InputPlan`, made and checked on the driver (`plan_records`).
Out: a PCollection of pyarrow.RecordBatch with plan.schema, exact and private.

    plan = plan_records(["data/*.parquet"], Source(ids=("user_id", "url")))      # raises InputError
    batches = pipeline | ReadRecords(plan)

Work is split by file, by Parquet row groups, and by byte ranges of uncompressed lines; each part is read by
itself, so any worker may read any of them again. Bad records are set aside and counted (counters `bad` and
one for each reason); with Source(keep_bad=True) the transform returns two collections, `records`
and `bad` (batches of BAD_SCHEMA, private, for the operator alone). They are fatal only where they are more than
`limits` allow of all that was read.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics

from hushgram.errors import InputError
from hushgram.inputs import (
    Check,
    InputFile,
    InputPlan,
    Limits,
    Source,
    Tally,
    WorkItem,
    plan_inputs,
    read_item,
)
from hushgram.transforms.files import missing_file_system, open_file, reason
from hushgram.transforms.shuffle.vectors import CheckTallies

__all__ = [
    "PROGRESS_FILE", "TICK", "ReadRecords", "WriteBadRecords", "match_files", "plan_records",
    "read_records",
]  # fmt: skip


#: Environment variable with the path of a local file to which readers append a TICK for each batch. The
#: progress display of the local runner sets it; worker processes inherit it.
PROGRESS_FILE = "HUSHGRAM_PROGRESS_FILE"
#: rows, bad rows, bytes of input; small enough that an append is atomic
TICK = struct.Struct("<qqq")

_WILDCARD = re.compile(r"[*?\[]")
_HIDDEN = ("_", ".")
_NAMESPACE = "hushgram"
# A runner keeps every counter; reasons hold numbers ("7 fields instead of 2"), so they could be many.
_MAX_REASONS = 50


def plan_records(paths: Iterable[str], source: Source) -> InputPlan:
    """Finds the files and checks all of them; every problem is an `InputError` that names the file."""
    return plan_inputs(match_files(paths), source, open_file)


def match_files(paths: Iterable[str]) -> list[InputFile]:
    """The files that the paths and patterns name.

    A directory means the files below it, ``~`` the user's home. Files and folders whose names begin with ``_`` or
    ``.`` are not data (Spark and Beam write such beside it) unless the pattern begins so too; ``_day=1`` is data.
    """
    found: dict[str, InputFile] = {}
    for path in (os.path.expanduser(path.removeprefix("file://")) for path in paths):
        here = _match(path)
        if not here and not _WILDCARD.search(path):
            here = _match(path.rstrip("/") + "/**")
        if _base(path)[:1] not in _HIDDEN:
            here = [file for file in here if not _is_hidden(file.path, path)]
        if not here:
            raise InputError(
                f"input.path {path!r} matches no file; check the pattern and the working directory"
            )
        found.update((file.path, file) for file in here)
    return list(found.values())


def _base(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def _is_hidden(file: str, pattern: str) -> bool:
    """Whether the file, or a folder between it and what the pattern states, is no data."""
    stated = _WILDCARD.split(pattern)[0]
    stated = pattern if stated == pattern else stated[: stated.rfind("/") + 1]
    *folders, name = (file.removeprefix(stated) if file.startswith(stated) else _base(file)).split("/")
    return name[:1] in _HIDDEN or any(
        part[:1] == "." or (part[:1] == "_" and "=" not in part) for part in folders
    )


def _match(path: str) -> list[InputFile]:
    # Beam finds nothing for a pattern without a folder.
    here = "./" if "/" not in path and _WILDCARD.search(path) else ""
    if (missing := missing_file_system(path)) is not None:
        raise InputError(f"input.path {path!r} cannot be listed: {missing}")
    try:
        listed = FileSystems.match([here + path])[0].metadata_list
    except (BeamIOError, OSError, ValueError) as problem:
        raise InputError(f"input.path {path!r} cannot be listed: {reason(problem)}") from None
    local = FileSystems.get_scheme(path) is None
    return [
        InputFile(m.path.removeprefix(here), m.size_in_bytes)
        for m in listed
        if not (local and os.path.isdir(m.path))
    ]


def read_records(pipeline: beam.Pipeline, reader: ReadRecords, bad_records: str | None = None) -> Any:
    """The records of a plan; those that are set aside go to ``bad_records``, where a job keeps them."""
    plan, read = reader.plan, pipeline | "Read" >> reader
    if not plan.source.keep_bad:
        return read
    if bad_records is not None:
        _ = read.bad | "SetAside" >> WriteBadRecords(bad_records)
    return read.records


class ReadRecords(beam.PTransform):
    """Reads all items of a plan; see the module for what comes out.

    Where more is set aside than ``limits`` allow, or too little is there, the pipeline fails with an `InputError`. Once
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
            | "ReadItem" >> beam.ParDo(_ReadItem(common)).with_outputs("bad", "tally", main="records")
        )
        read.records.element_type = pa.RecordBatch
        self.checked = read.tally | "CheckRead" >> CheckTallies(self._check)
        return read if self.plan.source.keep_bad else read.records

    def display_data(self) -> dict[str, Any]:
        # Patterns and columns are public; sizes and row counts are not shown.
        return {"columns": ", ".join(self.plan.source.names), "formats": ", ".join(self.plan.formats)}


class _ReadItem(beam.DoFn):
    """WorkItem → batches; counts what it reads and what it sets aside."""

    def __init__(self, plan: InputPlan) -> None:
        self._plan = plan

    def setup(self) -> None:
        self._rows = Metrics.counter(_NAMESPACE, "rows")
        self._bytes = Metrics.counter(_NAMESPACE, "bytes")
        self._bad = Metrics.counter(_NAMESPACE, "bad")
        self._reasons: set[str] = set()

    def process(self, item: WorkItem) -> Iterator[Any]:
        tally = Tally()
        for chunk in read_item(item, self._plan, open_file):
            tally.read(chunk, item)
            bad = sum(chunk.rejected.values())
            self._rows.inc(chunk.batch.num_rows)
            self._bytes.inc(chunk.size)
            if bad:
                self._bad.inc(bad)
                for reason, count in chunk.rejected.items():
                    self._reasons.add(reason)
                    shown = reason if len(self._reasons) <= _MAX_REASONS else "other reasons"
                    Metrics.counter(_NAMESPACE, f"bad: {shown}").inc(count)
            _tick(chunk.batch.num_rows, bad, chunk.size)
            if chunk.bad is not None:
                yield beam.pvalue.TaggedOutput("bad", chunk.bad)
            if chunk.batch.num_rows:
                yield chunk.batch
        yield beam.pvalue.TaggedOutput("tally", tally)


def _tick(rows: int, bad: int, size: int) -> None:
    """Tells the local progress display, where there is one. A display that is gone is no reason to fail."""
    path = os.environ.get(PROGRESS_FILE)
    if path is None:
        return
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, TICK.pack(rows, bad, size))
        finally:
            os.close(file)
    except OSError:
        pass


class WriteBadRecords(beam.PTransform):
    """Batches of BAD_SCHEMA → JSON lines at `path`. They hold private data: keep them where the input is."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def expand(self, bad: Any) -> Any:
        return (
            bad
            | "AsJson" >> beam.FlatMap(_json_lines).with_output_types(str)
            | "Write" >> beam.io.WriteToText(self._path, num_shards=1, shard_name_template="")
        )


def _json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    for row in batch.to_pylist():
        row["record"] = row["record"].decode("utf-8", "backslashreplace")
        yield json.dumps(row, ensure_ascii=False)
