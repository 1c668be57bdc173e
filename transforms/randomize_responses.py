"""Randomized response on the workers that read the records: the local model.

In:  an `InputPlan` (files that hold records with secret and public columns).
Out: Parquet parts of the released table, and one element: what the manifest needs to know of them.

    read a batch ─► flip its secret bits ─► released rows     one step, on one worker
    all rows ─► sum by row ─► cut into parts ─► write         (`hushgram.mechanisms.randomized_response.rows`)

Exact bits are in no collection, no shuffle and no checkpoint; what is shuffled is released. **Noise.** A batch has a
place (work item of the plan, batch within it), which is a function of the files alone and never of bundles or workers.
Its noise comes from

    key.source("rr", item, digest(ε of a bit, name, batch, exact bits, digest of all exact bits))

so a retry flips the same bits, two equal batches at different places get independent noise, and any change
of a secret changes the noise of the whole table. The digest of all exact bits costs a first reading of the
input; what leaves it are keyed digests of batches.

**Nothing but the noisy bits depends on a secret.** Secret columns are read as `Source.secrets`: their values decide
neither which records are read nor how other values are. Where a batch ends does depend on the bytes of the input, so on
how secrets are spelled; but it decides only which draws a record gets, and all draws are independent and alike. The
table is a function of the multiset of released rows, whatever batches they came in. So the released multiset has the
distribution of randomized response on each record by itself, and everything else about the table (how many rows, their
order, how many parts, how many rows each) is a function of that multiset and of a key that is independent of it.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems

from hushgram.errors import ParameterError
from hushgram.inputs import Check, InputPlan, Limits, RecordCounts, WorkItem, read_item
from hushgram.mechanisms.randomized_response.mechanism import RandomizedResponseParams, randomize
from hushgram.mechanisms.randomized_response.rows import Rows, Secret, check_columns, from_bytes, to_bytes
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.numbers import show
from hushgram.transforms.files import create_file, open_file
from hushgram.transforms.shuffle.combining import CheckTallies, DigestAll, operator_counter, shards_for

__all__ = ["RandomizeResponses", "Secret", "randomize_batch"]


class RandomizeResponses(beam.PTransform):
    """Files of records → a released table of randomized responses under ``path``.

    ``params.secrets`` must be the number of ``secrets``: they share each record's ε. The plan must read their
    columns as `Source.secrets`. Input beyond ``limits`` is refused before anything is written. Columns named in
    ``public`` are published as they are. ``counters`` is as in `ReleaseSparseHistogram`. The result is one element,
    {part: {bytes, sha256}}, for the manifest.
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
        counters: bool = False,
    ) -> None:
        super().__init__()
        self._check = Check.of(plan, limits or Limits())
        if params.secrets != len(secrets):
            raise ParameterError(
                f"RandomizeResponses: epsilon is split for {params.secrets} secrets, got {len(secrets)}"
            )
        unguarded = {column for secret in secrets for column in secret.columns} - set(plan.source.secrets)
        if unguarded:
            raise ParameterError(
                f"RandomizeResponses: column {min(unguarded)!r} is secret; name it in Source(secrets=…) of the plan"
            )
        check_columns(plan.schema, secrets, public)  # a mistake shows before anything is read
        self._plan, self._params, self._path = plan, params, path
        # How many there are has no effect on the result: they are ranges of one order.
        groups = shards_for(plan.bytes).groups
        self._step = _Randomize(plan, tuple(secrets), tuple(public), params, release_key, groups, counters)

    def expand(self, begin: Any) -> Any:
        items = sorted(self._plan.items, key=lambda item: (item.path, item.start, item.groups))
        listed = begin | "ListItems" >> beam.Create(list(enumerate(items)), reshuffle=True)
        read = listed | "DigestBits" >> beam.FlatMap(self._step.digests).with_outputs("tally", main="digests")
        release = read.digests | "AllBits" >> DigestAll()
        checked = read.tally | "CheckRead" >> CheckTallies(self._check)
        rows = listed | "Randomize" >> beam.ParDo(
            self._step, beam.pvalue.AsSingleton(release), beam.pvalue.AsList(checked)
        ).with_output_types(tuple[int, Rows])  # (group, released rows)
        sums = (
            rows
            | "GroupRows" >> beam.GroupByKey()
            | "SumRows" >> beam.MapTuple(lambda group, parts: (group, Rows.merge(parts)))
        )
        sizes = (
            sums
            | "CountRows" >> beam.MapTuple(lambda group, held: (group, int(held.counts.sum())))
            | "Sizes" >> beam.combiners.ToDict()
        )
        return (
            sums
            | "CutParts" >> beam.FlatMap(_cut, beam.pvalue.AsSingleton(sizes))  # (part, (position, rows))
            | "GroupParts" >> beam.GroupByKey()
            | "WriteParts" >> beam.Map(_write_part, self._path)  # (name, {bytes, sha256})
            | "Parts" >> beam.combiners.ToDict()
        )

    def display_data(self) -> dict[str, Any]:
        return {"epsilon": show(self._params.epsilon), "secrets": self._params.secrets}


class _Randomize(beam.DoFn):
    """(number, work item) → (group, released rows)."""

    def __init__(
        self,
        plan: InputPlan,
        secrets: tuple[Secret, ...],
        public: tuple[str, ...],
        params: RandomizedResponseParams,
        release_key: ReleaseKey,
        groups: int,
        counters: bool,
    ) -> None:
        self._counters = counters
        self._plan, self._secrets, self._public = plan, secrets, public
        self._params, self._release_key, self._groups = params, release_key, groups

    def setup(self) -> None:
        self._rows = operator_counter("rows", self._counters)

    def digests(self, numbered: tuple[int, WorkItem]) -> Iterator[Any]:
        """Return a digest of the exact bits of each batch, keyed so that bits cannot be guessed, and what was read."""
        (number, item), tally = numbered, RecordCounts()
        keyed = self._release_key.subkey("digest of secret bits")
        for batch, records in self._batches(item, tally):
            yield digest(keyed, number, batch, *(secret.bits(records) for secret in self._secrets))
        yield beam.pvalue.TaggedOutput("tally", tally)

    def _batches(self, item: WorkItem, tally: RecordCounts) -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch, chunk in enumerate(read_item(item, self._plan, open_file)):
            tally.read(chunk, item)
            if chunk.batch.num_rows:
                yield batch, chunk.batch

    def process(
        self, numbered: tuple[int, WorkItem], release: bytes, _checked: list[bool]
    ) -> Iterator[tuple[int, Rows]]:
        number, item = numbered
        order = self._release_key.subkey("order of released rows")
        for batch, records in self._batches(item, RecordCounts()):
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
            yield from Rows.of(table, order).split(self._groups)


def _cut(numbered: tuple[int, Rows], sizes: dict[int, int]) -> Iterator[tuple[int, tuple[int, bytes]]]:
    group, rows = numbered
    before = sum(size for other, size in sizes.items() if other < group)
    return ((part, (at, to_bytes(held))) for part, at, held in rows.cut(before))


def _write_part(numbered: tuple[int, Iterable[tuple[int, bytes]]], path: str) -> tuple[str, dict[str, Any]]:
    (part, pieces), sink = numbered, io.BytesIO()
    table = pa.concat_tables(from_bytes(content) for _, content in sorted(pieces))
    pq.write_table(table.combine_chunks(), sink, compression="zstd")
    name, content = f"part-{part:05d}.parquet", sink.getvalue()
    with create_file(FileSystems.join(path, name)) as file:
        file.write(content)
    return name, {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


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
    """Randomize one batch, whose place is batch ``number`` of work item ``item``.

    ``release`` is the digest of all exact bits of the table.
    """
    columns: dict[str, Any] = {name: batch.column(name) for name in public}
    for secret in secrets:
        bits = secret.bits(batch)
        source = key.source("rr", item, digest(str(params.bit_epsilon), secret.name, number, bits, release))
        columns[secret.name] = randomize(bits, params, source)
    return pa.table(columns)
