"""Randomized response on the workers that read the records: the local model.

In:  an `InputPlan` (files that hold records with secret and public columns).
Out: Parquet parts of the released table, and one element: what the manifest needs to know of them.

A part is read, flipped and written by one step on one worker: exact bits are in no collection, no shuffle
and no checkpoint. **Noise.** A part is a position (work item of the plan, batch within it), which is a
function of the files alone and never of bundles or workers. Its noise comes from

    key.source("rr", item, digest(ε of a bit, name, batch, exact bits, digest of all exact bits))

so a retry writes the same bytes, two equal batches at different places get independent noise, and any change
of a secret changes the noise of the whole table. The digest of all exact bits costs a first reading of the
input; what leaves it are keyed digests of batches.
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
from hushgram.inputs import Check, InputPlan, Limits, Tally, WorkItem, read_item
from hushgram.inputs.condition_values import numbers_in, text_bytes
from hushgram.inputs.conditions import Condition, bind
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.numbers import show
from hushgram.randomized_response.mechanism import RandomizedResponseParams, randomize
from hushgram.transforms.files import open_file
from hushgram.transforms.shuffle.checking import CheckTallies
from hushgram.transforms.shuffle.digests import DigestAll

__all__ = ["RandomizeResponses", "Secret", "randomize_batch"]


@dataclass(frozen=True)
class Secret:
    """A secret bit of each record: a column of booleans (or numbers, which count unless they are 0), or a condition.

    A missing value is the bit 0: to leave such records out would tell who they are.
    """

    name: str
    column: str = ""
    equals: str | None = None
    at_least: float | None = None
    where: Condition | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold or decide the bit."""
        return (self.column,) if self.where is None else self.where.columns

    def bits(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        """The exact bits of a batch: private."""
        if self.where is not None:
            return bind(self.where, batch.schema).matches(batch)
        column = batch.column(self.column)
        if self.equals is not None:
            found = pc.equal(text_bytes(column), pa.scalar(self.equals.encode(), pa.large_binary()))
        elif self.at_least is not None:
            found = pc.greater_equal(numbers_in(column), self.at_least)
        elif pa.types.is_boolean(column.type):
            found = column
        else:
            words = pc.match_substring_regex(text_bytes(column), "^(true|yes|t|y)$", ignore_case=True)
            found = pc.or_(words, pc.fill_null(pc.not_equal(numbers_in(column), 0), False))
        return np.asarray(pc.fill_null(found, False), dtype=np.bool_)


class RandomizeResponses(beam.PTransform):
    """Files of records → a released table of randomized responses under ``path``.

    ``params.secrets`` must be the number of ``secrets``: they share each record's ε. Input beyond ``limits`` is refused
    before anything is written. Columns named in
    ``public`` are published as they are. The result is one element, {part: {bytes, sha256}}, for the
    manifest.
    """

    def __init__(
        self,
        plan: InputPlan,
        secrets: Sequence[Secret],
        public: Sequence[str],
        params: RandomizedResponseParams,
        *,
        path: str,
        release_key: ReleaseKey,
        limits: Limits | None = None,
    ) -> None:
        super().__init__()
        self._check = Check.of(plan, limits or Limits())
        if params.secrets != len(secrets):
            raise ParameterError(
                f"RandomizeResponses: epsilon is split for {params.secrets} secrets, got {len(secrets)}"
            )
        exposed = {column for secret in secrets for column in secret.columns} & set(public)
        if exposed:
            raise ParameterError(
                f"RandomizeResponses: column {min(exposed)!r} is secret and cannot be public"
            )
        for secret in secrets:
            if secret.where is not None:
                bind(secret.where, plan.schema)  # a mistake shows before anything is read
        self._plan, self._params, self._path = plan, params, path
        self._step = _Randomize(plan, tuple(secrets), tuple(public), params, path, release_key)

    def expand(self, begin: Any) -> Any:
        items = sorted(self._plan.items, key=lambda item: (item.path, item.start, item.groups))
        listed = begin | "ListItems" >> beam.Create(list(enumerate(items)), reshuffle=True)
        read = listed | "DigestBits" >> beam.FlatMap(self._step.digests).with_outputs("tally", main="digests")
        release = read.digests | "AllBits" >> DigestAll()
        checked = read.tally | "CheckRead" >> CheckTallies(self._check)
        return (
            listed
            | "Randomize"
            >> beam.ParDo(
                self._step, beam.pvalue.AsSingleton(release), beam.pvalue.AsList(checked)
            )  # (part, {bytes, sha256})
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
        params: RandomizedResponseParams,
        path: str,
        release_key: ReleaseKey,
    ) -> None:
        self._plan, self._secrets, self._public = plan, secrets, public
        self._params, self._path, self._release_key = params, path, release_key

    def setup(self) -> None:
        self._rows = Metrics.counter("hushgram", "rows")

    def digests(self, numbered: tuple[int, WorkItem]) -> Iterator[Any]:
        """A digest of the exact bits of each batch; keyed, for few bits could be guessed from it. And what was read."""
        (number, item), tally = numbered, Tally()
        keyed = self._release_key.subkey("digest of secret bits")
        for batch, records in self._batches(item, tally):
            yield digest(keyed, number, batch, *(secret.bits(records) for secret in self._secrets))
        yield beam.pvalue.TaggedOutput("tally", tally)

    def _batches(self, item: WorkItem, tally: Tally) -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch, chunk in enumerate(read_item(item, self._plan, open_file)):
            tally.read(chunk, item)
            if chunk.batch.num_rows:
                yield batch, chunk.batch

    def process(
        self, numbered: tuple[int, WorkItem], release: bytes, _checked: list[bool]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        number, item = numbered
        for batch, records in self._batches(item, Tally()):
            self._rows.inc(records.num_rows)
            table = randomize_batch(
                records,
                self._secrets,
                self._public,
                self._params,
                self._release_key,
                item=number,
                number=batch,
                release=release,
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
    params: RandomizedResponseParams,
    key: ReleaseKey,
    *,
    item: int,
    number: int,
    release: bytes = b"",
) -> pa.Table:
    """The released form of one batch, whose place is batch ``number`` of work item ``item``.

    ``release`` is the digest of all exact bits of the table.
    """
    columns: dict[str, Any] = {name: batch.column(name) for name in public}
    for secret in secrets:
        bits = secret.bits(batch)
        source = key.source("rr", item, digest(str(params.bit_epsilon), secret.name, number, bits, release))
        columns[secret.name] = randomize(bits, params, source)
    return pa.table(columns)
