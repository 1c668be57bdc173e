"""Randomized response on the workers that read the records: the local model.

In:  an `InputPlan` (files that hold records with secret and public columns).
Out: Parquet parts of the released table, and one element: what the manifest needs to know of them.

A part is read, flipped and written by one step on one worker: exact bits are in no collection, no shuffle
and no checkpoint. **Noise.** A part is a position (work item of the plan, batch within it), which is a
function of the files alone and never of bundles or workers. Its noise comes from

    key.source("rr", item, digest(ε of a bit, name, batch, exact bits))

so a retry writes the same bytes, and two equal batches at different places get independent noise.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.inputs import InputPlan, WorkItem, read_item
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.numbers import show
from hushgram.randomized_response.mechanism import LinearParams, randomize
from hushgram.transforms.files import open_file

__all__ = ["RandomizeResponses", "Secret", "randomize_batch"]


@dataclass(frozen=True)
class Secret:
    """A secret bit of each record: a column of booleans (or 0 and 1), or a comparison of a column.

    A missing value is the bit 0: to leave such records out would tell who they are.
    """

    name: str
    column: str
    equals: str | None = None
    at_least: float | None = None

    def bits(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        """The exact bits of a batch: private."""
        column = batch.column(self.column)
        if self.equals is not None:
            found = pc.equal(column.cast(pa.string()), self.equals)
        elif self.at_least is not None:
            numbers = (
                pc.cast(column, pa.float64(), safe=False) if _is_number(column.type) else _numbers(column)
            )
            found = pc.greater_equal(numbers, self.at_least)
        elif pa.types.is_boolean(column.type):
            found = column
        elif _is_number(column.type):
            found = pc.not_equal(column, 0)
        else:
            found = pc.is_in(
                pc.utf8_lower(column.cast(pa.string())), pa.array(["1", "true", "yes", "t", "y"])
            )
        return np.asarray(pc.fill_null(found, False), dtype=np.bool_)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _numbers(column: pa.Array) -> pa.Array:
    """Text as numbers; what is none becomes null, and so the bit 0."""
    text = column.cast(pa.string())
    is_number = pc.match_substring_regex(text, r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?$")
    return pc.if_else(is_number, text, None).cast(pa.float64())


class RandomizeResponses(beam.PTransform):
    """Files of records → a released table of randomized responses under ``path``.

    ``params.secrets`` must be the number of ``secrets``: they share each record's ε. Columns named in
    ``public`` are published as they are. The result is one element, {part: {bytes, sha256}}, for the
    manifest.
    """

    def __init__(
        self,
        plan: InputPlan,
        secrets: Sequence[Secret],
        public: Sequence[str],
        params: LinearParams,
        *,
        path: str,
        release_key: ReleaseKey,
    ) -> None:
        super().__init__()
        if params.secrets != len(secrets):
            raise ParameterError(
                f"RandomizeResponses: epsilon is split for {params.secrets} secrets, got {len(secrets)}"
            )
        exposed = {s.column for s in secrets} & set(public)
        if exposed:
            raise ParameterError(
                f"RandomizeResponses: column {min(exposed)!r} is secret and cannot be public"
            )
        self._plan, self._params, self._path = plan, params, path
        self._step = _Randomize(plan, tuple(secrets), tuple(public), params, path, release_key)

    def expand(self, begin: Any) -> Any:
        items = sorted(self._plan.items, key=lambda item: (item.path, item.start, item.groups))
        return (
            begin
            | "ListItems" >> beam.Create(list(enumerate(items)), reshuffle=True)
            | "Randomize" >> beam.ParDo(self._step)  # (part, {bytes, sha256})
            | "Parts" >> beam.combiners.ToDict()
        )

    def display_data(self) -> dict[str, Any]:
        return {"epsilon": show(self._params.epsilon), "secrets": self._params.secrets}


class _Randomize(beam.DoFn):
    """(number, work item) → parts written, with their sizes."""

    def __init__(
        self,
        plan: InputPlan,
        secrets: tuple[Secret, ...],
        public: tuple[str, ...],
        params: LinearParams,
        path: str,
        release_key: ReleaseKey,
    ) -> None:
        self._plan, self._secrets, self._public = plan, secrets, public
        self._params, self._path, self._release_key = params, path, release_key

    def setup(self) -> None:
        self._rows = Metrics.counter("hushgram", "rows")

    def process(self, numbered: tuple[int, WorkItem]) -> Iterator[tuple[str, dict[str, Any]]]:
        number, item = numbered
        for batch, chunk in enumerate(read_item(item, self._plan, open_file)):
            if not chunk.batch.num_rows:
                continue
            self._rows.inc(chunk.batch.num_rows)
            table = randomize_batch(
                chunk.batch,
                self._secrets,
                self._public,
                self._params,
                self._release_key,
                item=number,
                number=batch,
            )
            sink = io.BytesIO()
            pq.write_table(table, sink, compression="zstd")
            name = f"part-{number:05d}-{batch:05d}.parquet"
            with FileSystems.create(FileSystems.join(self._path, name)) as file:
                file.write(sink.getvalue())
            yield name, {"bytes": len(sink.getvalue()), "sha256": hashlib.sha256(sink.getvalue()).hexdigest()}


def randomize_batch(
    batch: pa.RecordBatch,
    secrets: Sequence[Secret],
    public: Sequence[str],
    params: LinearParams,
    key: ReleaseKey,
    *,
    item: int,
    number: int,
) -> pa.Table:
    """The released form of one batch, whose place is batch ``number`` of work item ``item``."""
    columns: dict[str, Any] = {name: batch.column(name) for name in public}
    for secret in secrets:
        bits = secret.bits(batch)
        source = key.source("rr", item, digest(str(params.bit_epsilon), secret.name, number, bits))
        columns[secret.name] = randomize(bits, params, source)
    return pa.table(columns)
