"""Sparse vector stages: exact answers from bounded data (`AnswerQueries`), released ones from those (`SparseVector`).

In:  `Histogram` parts of bounded contributions, by key ("keys") and by packed record ("records").
Mid: (stream, (sequence numbers, exact answers)): exact and private. Your own pipeline may begin here, with arrays, or
     with single numbers where queries arrive one at a time.
Out: (stream, `StreamAnswers`): outcome (⊤ 1, ⊥ 0, halted −1), gap and value of each sequence number; public.

Each worker counts its parts into vectors of whole numbers (`QueryPlan`), vectors are summed, and the answers are read
from the sum: one pass over the data however many queries there are. `AskQueries` takes the queries as a collection
instead, which may be unbounded.

Order is part of the meaning: a stream is answered by sequence number, and halts after ``cutoff``
yes-answers. Each stream spends the (ε, δ) of its own parameters, and several streams over the same data compose: so
all streams are named when the stage is made, and any other is refused.

**Batch.** A stream is gathered, sorted and run at once; its noise follows from the release key, the
stream's name, the parameters, and the sequence numbers and exact answers of all streams: a retry gives the
same output, and any change of the data changes the noise of every stream.

**Online.** A stateful DoFn per stream: what arrives early is held back until its turn, what arrives twice
is answered as before without new noise, and a halted stream says so at once. The state is O(cutoff) besides
what is held back (see `hushgram.mechanisms.svt.online`), and the noise survives a restored checkpoint; a checkpoint
restored under another release key is refused.

**Windows** of the input are left behind: a stream has one threshold and one cutoff for all time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.coders import BytesCoder, PickleCoder
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec
from numpy.typing import NDArray

from hushgram.contributions.histogram import Histogram
from hushgram.errors import ParameterError
from hushgram.mechanisms.laplace import whole_numbers
from hushgram.mechanisms.svt.exact_answers import QueryPlan, counted, pack_records, unpack_records
from hushgram.mechanisms.svt.histogram import HistogramParams
from hushgram.mechanisms.svt.mechanism import Answer, run_batch
from hushgram.mechanisms.svt.online import StreamState, advance, begin, recall
from hushgram.mechanisms.svt.params import SvtParams
from hushgram.mechanisms.svt.queries import Query, check_stream, parse_query
from hushgram.noise.entropy import InteractiveKey, ReleaseKey, StreamKey, digest, take_key
from hushgram.numbers import show
from hushgram.sensitivity import ExactVector, PrivacyUnit, Sensitivity
from hushgram.transforms.shuffle.combining import DigestAll, OneWindow, SumParts

__all__ = ["RECORD", "AnswerQueries", "AskQueries", "PackRecords", "SparseVector", "StreamAnswers"]

#: The column in which packed records travel to the bounding stage.
RECORD = "record"

I64 = NDArray[np.int64]
Params: TypeAlias = SvtParams | HistogramParams


class PackRecords(beam.PTransform):
    """Arrow batches → batches of (user, record), a record being the key and the queried columns as bytes.

    Args:
        schema: the columns of a record (`QueryPlan.record_schema`).
        user: the column of users; without one, batches have the record alone.
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

    Either collection may be left out where no query needs it.

    Args:
        plan: all queries, compiled.
        streams: names of the streams and sequence numbers of their queries, in the order of ``plan``.
    """

    def __init__(self, plan: QueryPlan, streams: Sequence[tuple[str, I64 | range]]) -> None:
        super().__init__()
        self._plan, self._streams = plan, list(streams)

    def expand(self, parts: Mapping[str, Any]) -> Any:
        sums = {
            name: collection
            | f"Count{name.title()}" >> beam.Map(_count_part, self._plan.counting(), name)
            | f"Sum{name.title()}" >> SumParts(len(self._plan.zeros()))
            for name, collection in parts.items()
        }
        records = beam.pvalue.AsSingleton(sums["records"]) if len(sums) == 2 else None
        total = sums["keys"] if "keys" in sums else sums["records"]
        read = beam.FlatMap(_read_answers, self._plan.reading(), self._streams, records)
        return total | "ReadAnswers" >> read

    def display_data(self) -> dict[str, Any]:
        return {"queries": self._plan.size, "streams": len(self._streams)}


def _read_answers(
    total: ExactVector,
    plan: QueryPlan,
    streams: list[tuple[str, I64 | range]],
    records: ExactVector | None = None,
) -> Iterator[tuple[str, tuple[I64, ExactVector]]]:
    if records is not None:
        total = ExactVector(total.values + records.values, counted([total], [records]))
    answers = plan.answers(total, [len(numbers) for _, numbers in streams])
    for (name, numbers), own in zip(streams, answers, strict=True):
        yield name, (np.asarray(numbers, dtype=np.int64), own)


def _count_part(part: Histogram, plan: QueryPlan, form: str) -> ExactVector:
    vector = plan.zeros()
    if form == "keys":
        plan.add_keys(vector, part)
    elif len(part):
        plan.add_records(vector, unpack_records(part.texts, plan.record_schema), part.counts)
    return ExactVector(vector, part.sensitivity)


class AskQueries(beam.PTransform):
    """{"queries": (stream, query), "keys": parts, "records": parts} → (stream, (sequence numbers, exact answers)).

    A query has the fields of a line in a file of queries, with its sequence number in "seq". The data are bounded, and
    every worker holds all of their parts; the queries may be unbounded. Bounded ones are counted in one pass, unbounded
    ones as they come. Either of "keys" and "records" may be left out where no query
    needs it.

    Args:
        schema: the columns that queries may name: those that records were packed with (`PackRecords`).
        key: the column of keys.
    """

    def __init__(self, schema: pa.Schema, key: str) -> None:
        super().__init__()
        self._schema, self._key = schema, key

    def expand(self, given: Mapping[str, Any]) -> Any:
        queries = given["queries"] | "AllTime" >> OneWindow()
        if queries.is_bounded:
            asked = queries | "Gather" >> beam.GroupByKey()
        else:
            asked = queries | "OneByOne" >> beam.MapTuple(lambda stream, query: (stream, [query]))
        parts = [
            beam.pvalue.AsList(given[name] | f"All{name.title()}" >> OneWindow()) if name in given else None
            for name in ("keys", "records")
        ]
        return asked | "Count" >> beam.ParDo(_CountQueries(self._schema, self._key), *parts)


class _CountQueries(beam.DoFn):
    """Queries of a stream → their exact answers."""

    def __init__(self, schema: pa.Schema, key: str) -> None:
        self._schema, self._key = schema, key
        self._rows: list[pa.Table] | None = None  # the data do not change, so their rows are read once

    def process(
        self,
        element: tuple[str, Iterable[Mapping[str, Any]]],
        keys: list[Histogram] | None,
        records: list[Histogram] | None,
    ) -> Iterator[tuple[str, tuple[I64, ExactVector]]]:
        stream, asked = element
        queries = check_stream((_numbered(query, stream) for query in asked), f"stream {stream}")
        plan = QueryPlan(queries, self._schema, self._key)
        for name, needed, parts in (
            ("keys", plan.reads_keys, keys),
            ("records", plan.reads_records, records),
        ):
            if needed and parts is None:
                raise ParameterError(f"AskQueries: stream {stream} asks for {name}, and no {name} were given")
        vector = plan.zeros()
        for part in keys or ():
            plan.add_keys(vector, part)
        if plan.reads_records and records:
            if self._rows is None:
                self._rows = [unpack_records(part.texts, self._schema) for part in records]
            for rows, part in zip(self._rows, records, strict=True):
                plan.add_records(vector, rows, part.counts)
        total = ExactVector(vector, counted(keys or (), records or ()))
        numbers = np.array([query.sequence for query in queries], dtype=np.int64)
        yield stream, (numbers, plan.answers(total, [len(queries)])[0])


def _numbered(query: Mapping[str, Any], stream: str) -> Query:
    if "seq" not in query:
        raise ParameterError(
            f"AskQueries: a query of stream {stream} has no seq; a collection has no order, so number them from 0"
        )
    return parse_query(query, 0, f"stream {stream}, query {query['seq']}")


class StreamAnswers(NamedTuple):
    """Released answers of one stream by sequence number; gap and value are 0 where there is none."""

    sequence: I64
    outcome: NDArray[np.int8]
    gap: I64
    value: I64


class SparseVector(beam.PTransform):
    """(stream, (sequence numbers, exact answers)) → (stream, `StreamAnswers`).

    Args:
        params: of each stream by name: `SvtParams`, or for a batch `HistogramParams`. The stage spends their sum.
        release_key: a secret: whoever has it can subtract the noise. A batch has a `ReleaseKey`, which reproduces an
            earlier run; an online stage has an `InteractiveKey`, which it takes. Left out, a fresh one is made, so
            that building the pipeline again is a new release.
        online: whether to answer one by one; left out, whether the input is unbounded.
        first: the sequence number that an online stream begins with; numbers leave no gap.
        unit: the privacy unit.
    """

    def __init__(
        self,
        params: Mapping[str, Params],
        *,
        release_key: ReleaseKey | InteractiveKey | None = None,
        online: bool | None = None,
        first: int = 0,
        unit: PrivacyUnit = "user",
    ) -> None:
        super().__init__()
        if not isinstance(params, Mapping) or not params:
            raise ParameterError(
                'SparseVector: params must name every stream, such as {"alerts": SvtParams(…)}'
            )
        self._params = dict(params)
        self._release_key = release_key
        self._online, self._first, self._unit = online, first, unit

    def expand(self, answers: Any) -> Any:
        online = not answers.is_bounded if self._online is None else self._online
        told = (self._params, self._unit)
        whole = answers | "AllTime" >> OneWindow()
        if online:
            if any(isinstance(one, HistogramParams) for one in self._params.values()):
                raise ParameterError(
                    "SparseVector: noise on every answer needs all queries at once; take SvtParams where they arrive "
                    "one by one"
                )
            key = take_key(self._release_key or InteractiveKey.generate(), "SparseVector")
            return (
                whole
                | "OneByOne"
                >> beam.FlatMap(_one_by_one, *told).with_output_types(tuple[str, tuple[int, int]])
                | "Answer" >> beam.ParDo(_AnswerOnline(self._params, key, self._first))
            )
        streams = whole | "Gather" >> beam.GroupByKey() | "Order" >> beam.Map(_in_order, *told)
        release = (
            streams
            | "Digest" >> beam.MapTuple(lambda stream, numbers, own: digest(stream, numbers, own.values))
            | "AllStreams" >> DigestAll()
        )
        batch_key = self._release_key or ReleaseKey.generate()
        if not isinstance(batch_key, ReleaseKey):
            raise ParameterError(
                "SparseVector: a batch may be run again and needs a ReleaseKey; see online=True"
            )
        step = _AnswerBatch(self._params, batch_key, self._unit)
        return streams | "Answer" >> beam.ParDo(step, beam.pvalue.AsSingleton(release))

    def display_data(self) -> dict[str, Any]:
        return {
            name: f"epsilon {show(p.epsilon)}, delta {show(p.delta)}, threshold {p.threshold}, "
            + (f"c = {p.cutoff}" if isinstance(p, SvtParams) else "noise on every answer")
            for name, p in self._params.items()
        }


def _params_of(params: Mapping[str, Params], stream: str) -> Params:
    if stream not in params:
        raise ParameterError(f"SparseVector: no parameters for stream {stream!r}; it has {', '.join(params)}")
    return params[stream]


def _one_by_one(
    element: tuple[str, tuple[Any, Any]], params: Mapping[str, Params], unit: PrivacyUnit
) -> Iterator[tuple[str, tuple[int, int]]]:
    stream, part = element
    calibrated = _params_of(params, stream).calibrated(unit)
    numbers, answers = _whole(part, calibrated)
    for number, answer in zip(numbers, answers.admit(calibrated).values, strict=True):
        yield stream, (int(number), int(answer))


def _whole(part: tuple[Any, Any], promised: Sensitivity) -> tuple[I64, ExactVector]:
    """Return sequence numbers and answers, however they were given; the caller promises that plain ones are bounded."""
    numbers, answers = part
    if not isinstance(answers, ExactVector):
        answers = ExactVector(_numbers(answers), promised)
    return _numbers(numbers), answers


def _numbers(given: Any) -> I64:
    return whole_numbers(given if np.ndim(given) else [given], "SparseVector")


def _in_order(
    gathered: tuple[str, Iterable[tuple[Any, Any]]],
    params: Mapping[str, Params],
    unit: PrivacyUnit,
) -> tuple[str, I64, ExactVector]:
    """Return a stream's answers by sequence number; canonical, also where a number comes twice."""
    stream, parts = gathered[0], list(gathered[1])
    promised = _params_of(params, stream).calibrated(unit)
    held = [_whole(part, promised) for part in parts]
    moved = [own.sensitivity for _, own in parts if isinstance(own, ExactVector)]
    if len(moved) < len(parts):  # the caller's promise is about all plain answers of the stream
        moved.append(promised)
    numbers = np.concatenate([part[0] for part in held])
    answers = np.concatenate([part[1].values for part in held])
    order = np.lexsort((answers, numbers))
    numbers, first = np.unique(numbers[order], return_index=True)
    return stream, numbers, ExactVector(answers[order][first], Sensitivity.side_by_side(moved))


class _AnswerBatch(beam.DoFn):
    """A stream in order, and the digest of all streams → its released answers."""

    def __init__(self, params: Mapping[str, Params], release_key: ReleaseKey, unit: PrivacyUnit) -> None:
        self._params, self._release_key, self._unit = params, release_key, unit

    def process(
        self, element: tuple[str, I64, ExactVector], release: bytes
    ) -> Iterator[tuple[str, StreamAnswers]]:
        stream, numbers, answers = element
        params = _params_of(self._params, stream)
        out = run_batch(
            answers, params, self._release_key, stream, sequence=numbers, release=release, unit=self._unit
        )
        yield stream, StreamAnswers(numbers, out.outcome, out.gap, out.value)


class _AnswerOnline(beam.DoFn):
    """Single answers of a stream → released answers, each as soon as its turn has come."""

    STATE = ReadModifyWriteStateSpec("stream", BytesCoder())
    HELD = BagStateSpec("held", PickleCoder())
    LOWEST = ReadModifyWriteStateSpec("lowest-held", PickleCoder())

    def __init__(self, params: Mapping[str, Params], key: StreamKey, first: int) -> None:
        self._params, self._key, self._first = params, key, first

    def process(
        self,
        element: tuple[str, tuple[int, int]],
        saved: Any = beam.DoFn.StateParam(STATE),  # noqa: B008 (how Beam names state)
        held: Any = beam.DoFn.StateParam(HELD),  # noqa: B008
        lowest: Any = beam.DoFn.StateParam(LOWEST),  # noqa: B008
    ) -> Iterator[tuple[str, StreamAnswers]]:
        stream, (number, answer) = element
        params: SvtParams = _params_of(self._params, stream)  # type: ignore[assignment]  # the stage checks it
        data = saved.read()
        new = data is None
        state = begin(params, self._key, stream, self._first) if new else StreamState.from_bytes(data)
        before = recall(state, number)
        if before is not None:
            yield stream, _single(number, before)
            return
        if number > state.next:
            held.add((number, answer))
            least = lowest.read()
            lowest.write(number if least is None else min(least, number))
            saved.write(state.to_bytes())
            return
        state, one = advance(params, self._key, state, answer)
        yield stream, _single(number, one)
        if state.halted or lowest.read() == state.next:
            state, released = self._catch_up(params, state, held, lowest)
            for later, one in released:
                yield stream, _single(later, one)
        saved.write(state.to_bytes())

    def _catch_up(
        self, params: SvtParams, state: StreamState, held: Any, lowest: Any
    ) -> tuple[StreamState, list[tuple[int, Answer]]]:
        """Answer what was held back and has its turn now; the rest is held on."""
        waiting = sorted(held.read())
        held.clear()
        lowest.clear()
        released = []
        for i, (number, answer) in enumerate(waiting):
            one = recall(state, number)  # twice held, or beyond the end of a halted stream
            if one is None and number > state.next:
                for still in waiting[i:]:
                    held.add(still)
                lowest.write(number)
                break
            if one is None:
                state, one = advance(params, self._key, state, answer)
            released.append((number, one))
        return state, released


def _single(number: int, answer: Answer) -> StreamAnswers:
    return StreamAnswers(
        np.array([number], dtype=np.int64),
        np.array([answer.outcome], dtype=np.int8),
        np.array([answer.gap or 0], dtype=np.int64),
        np.array([answer.value or 0], dtype=np.int64),
    )
