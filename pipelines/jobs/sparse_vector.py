"""``hushgram sparse-vector``: which queries of a stream are above a threshold?

    read ─┬─► bound by (user, key) ────► count keys and prefixes ──┐
          └─► bound by (user, record) ─► count ranges and wheres ──┴─► sum ─► SparseVector ─► answers.jsonl

For one release key and one input the file has the same bytes on every runner.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from hushgram.accounting import Event
from hushgram.errors import ParameterError
from hushgram.inputs.conditions import kinds_together
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.numbers import show
from hushgram.pipelines.config import AS_TUPLE, Exact, JobConfig, Model, Name, refuse
from hushgram.pipelines.jobs.files import read_text, write_lines
from hushgram.pipelines.jobs.job import Job, Line, LocalResources, Pipeline
from hushgram.sensitivity import Unit
from hushgram.svt.accuracy import alpha, refine, theorem_alpha
from hushgram.svt.exact_answers import QueryPlan, compact
from hushgram.svt.mechanism import ABOVE, HALTED
from hushgram.svt.params import SvtParams
from hushgram.svt.queries import Query, check_stream, default_id, parse_query, read_queries, sensitivity

if TYPE_CHECKING:
    from hushgram.transforms.sparse_vector import StreamAnswers

__all__ = [
    "JOB",
    "SparseVectorConfig",
    "SparseVectorJob",
    "Stream",
    "StreamConfig",
    "StreamHeader",
    "SvtConfig",
    "accuracy",
    "answer_lines",
]


_FORMS = {
    "split": "one threshold, optimal split (Lyu, Su, Li 2017)",
    "restarts": "calibrated runs of AboveThreshold (dp-accounting)",
    "notes": "threshold redrawn after each yes (Dwork, Roth 2014)",
}
_COLUMNS = {
    "stream": pa.string(), "id": pa.string(), "seq": pa.int64(), "above": pa.bool_(), "gap": pa.int64(),
    "value": pa.int64(), "estimate": pa.float64(),
}  # fmt: skip


class SvtConfig(Model):
    """The mechanism of a stream."""

    mechanism: Literal["above_threshold", "sparse"] = "sparse"
    threshold: int = Field(description="a query is above when its answer is at least this, such as 1000")
    cutoff: int | None = Field(
        default=None, ge=1, le=20_000, description="yes-answers after which the stream halts, such as 20"
    )
    answers: Literal["none", "gap", "numeric"] = "none"
    variant: Literal["optimal", "dwork-roth"] = "optimal"
    value_share: Exact = Field(
        default=Fraction(1, 2), description="share of epsilon for the values where answers is numeric"
    )
    beta: Exact = Field(
        default=Fraction(1, 20), description="probability with which the stated accuracy may fail"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mechanism == "above_threshold" and self.cutoff not in (None, 1):
            raise refuse(("cutoff",), "must be 1 or left out where mechanism is above_threshold")
        if self.mechanism == "sparse" and self.cutoff is None:
            raise refuse(("cutoff",), "is missing; say after how many yes-answers to halt, such as 20")
        if not 0 < self.beta < 1:
            raise refuse(("beta",), f"must be above 0 and below 1, got {self.beta}; 0.05 is common")
        if not 0 < self.value_share < 1:
            raise refuse(("value_share",), f"must be above 0 and below 1, got {self.value_share}")
        return self


class StreamConfig(Model):
    """One stream of queries: a file of JSON lines, or the queries themselves."""

    name: Name | None = Field(default=None, description="the name of this stream in the output")
    path: str | None = Field(default=None, description="JSON lines, one query each, such as queries.jsonl")
    queries: Annotated[tuple[dict[str, Any], ...] | None, AS_TUPLE] = Field(
        default=None,
        description='the queries themselves, such as [{key: "https://a/b"}, {prefix: "https://a/"}]',
    )
    share: Exact | None = Field(
        default=None, description="share of the budget where there are several streams; equal if left out"
    )
    svt: SvtConfig | None = Field(default=None, description="a mechanism of its own for this stream")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.path is None) == (self.queries is None):
            raise refuse(("path",), "or queries is needed, and not both")
        if self.share is not None and not 0 < self.share <= 1:
            raise refuse(("share",), f"must be above 0 and at most 1, got {self.share}")
        return self


class SparseVectorConfig(JobConfig):
    """Which of these queries are above a threshold?"""

    NAME: ClassVar[str] = "sparse_vector"

    sparse_vector: Name = Field(description="the name of this run, such as alerts-{date}")
    stream: StreamConfig | None = None
    streams: Annotated[tuple[StreamConfig, ...] | None, AS_TUPLE] = None
    svt: SvtConfig | None = None

    @field_validator("stream", mode="before")
    @classmethod
    def _inline(cls, value: Any) -> Any:
        return {"queries": value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.stream is None) == (not self.streams):
            raise refuse(("stream",), "or streams is needed, such as stream: {path: queries.jsonl}")
        if self.svt is None and any(stream.svt is None for stream in self.all_streams):
            raise refuse(("svt",), "is missing; such as {threshold: 1000, cutoff: 20}")
        names = [stream.name or f"stream-{i}" for i, stream in enumerate(self.all_streams, start=1)]
        if len(set(names)) < len(names):
            raise refuse(("streams",), "must have different names")
        shares = [stream.share for stream in self.all_streams]
        given = [share for share in shares if share is not None]
        if given and len(given) < len(shares):
            raise refuse(("streams",), "must all have a share, or none of them")
        if given and sum(given) > 1:
            raise refuse(("streams",), f"must have shares that add up to at most 1, got {sum(given)}")
        return self

    @property
    def all_streams(self) -> tuple[StreamConfig, ...]:
        """The streams in order."""
        return (self.stream,) if self.stream is not None else self.streams or ()


@dataclass(frozen=True)
class Stream:
    """A stream with its queries in order and the parameters of its mechanism."""

    name: str
    queries: tuple[Query, ...]
    params: SvtParams
    beta: Fraction
    unit: Unit

    @property
    def header(self) -> StreamHeader:
        """What the worker that writes needs to know."""
        named = any(query.id != default_id(query.sequence) for query in self.queries)
        ids = tuple(query.id for query in self.queries) if named else None
        return StreamHeader(self.name, len(self.queries), ids, self.params, self.beta)

    @property
    def events(self) -> list[Event]:
        """What the stream costs: the selection, and the values where they are released."""
        p, share = self.params, self.params.value_share
        details = {"stream": self.name, "sensitivity": str(p.sensitivity), "cutoff": str(p.cutoff)}
        parts = (("svt", 1 - share), ("laplace", share))
        return [
            Event(kind, p.epsilon * part, p.delta * part, details=details, relation=self.unit)
            for kind, part in parts
            if part
        ]


class SparseVectorJob(Job[SparseVectorConfig]):
    """Streams of queries over bounded contributions, answered by the sparse vector technique."""

    Config = SparseVectorConfig
    subject = "All answers together are"

    def resolve(self) -> None:
        config = self.config
        several = config.streams is not None
        self.streams = tuple(
            self._stream(i, stream, f"streams[{i}]" if several else "stream")
            for i, stream in enumerate(config.all_streams)
        )
        self._queries = [query for stream in self.streams for query in stream.queries]

    def _stream(self, i: int, stream: StreamConfig, label: str) -> Stream:
        config, svt = self.config, stream.svt or self.config.svt
        if svt is None:  # the config checks this
            raise ParameterError("svt is missing")
        queries = _queries(stream, label)
        share = Fraction(1, len(config.all_streams)) if stream.share is None else stream.share
        params = SvtParams(
            epsilon=config.privacy.epsilon * share,
            delta=config.privacy.delta * share,
            threshold=svt.threshold,
            cutoff=1 if svt.cutoff is None else svt.cutoff,
            sensitivity=self._sensitivity(queries),
            monotone=True,  # counts under add/remove: see hushgram.svt.queries
            variant=svt.variant,
            answers=svt.answers,
            value_share=svt.value_share,
        )
        default = self.name if len(config.all_streams) == 1 else f"stream-{i + 1}"
        return Stream(stream.name or default, queries, params, svt.beta, self.unit)

    def _sensitivity(self, queries: Iterable[Query]) -> int:
        privacy = self.config.privacy
        return sensitivity(queries, privacy.contributions, privacy.max_per_key)

    def columns(self) -> Iterable[str]:
        return dict.fromkeys(name for query in self._queries for name in query.columns)

    def column_types(self) -> dict[str, pa.DataType]:
        return kinds_together(query.kind.column_types for query in self._queries)

    def check_schema(self, schema: pa.Schema) -> None:
        self.plan = QueryPlan(self._queries, schema, self.config.input.key)

    def events(self) -> list[Event]:
        return [event for stream in self.streams for event in stream.events]

    def resolved(self) -> dict[str, Any]:
        return {
            stream.name: {**stream.params.describe(), "queries": digest(repr(stream.queries)).hex()}
            for stream in self.streams
        }

    def build(self, pipeline: Pipeline, path: str, release_key: ReleaseKey, local: LocalResources) -> None:
        import apache_beam as beam

        from hushgram.pipelines.jobs.stages import bounding, records
        from hushgram.transforms.answer_queries import RECORD, AnswerQueries, PackRecords
        from hushgram.transforms.sparse_vector import SparseVector

        source, config = records(pipeline, self), self.config.input
        plan, parts = self.plan, {}
        if plan.reads_keys:
            bound = bounding(self, config.key, release_key, local, texts=plan.texts)
            parts["keys"] = source | "BoundKeys" >> bound
        if plan.reads_records:
            packed = source | "PackRecords" >> PackRecords(plan.record_schema, config.user)
            parts["records"] = packed | "BoundRecords" >> bounding(
                self, RECORD, release_key, local, texts=True
            )
        numbers = [(stream.name, compact([q.sequence for q in stream.queries])) for stream in self.streams]
        params = {stream.name: stream.params for stream in self.streams}
        _ = (
            parts
            | "AnswerQueries" >> AnswerQueries(plan, numbers)  # (stream, (numbers, exact answers))
            | "SparseVector"
            >> SparseVector(
                params, release_key=release_key, online=False, unit=self.unit
            )  # (stream, StreamAnswers)
            | "Together" >> beam.combiners.ToList()
            | "WriteAnswers" >> beam.Map(_write, path, self._header(), [s.header for s in self.streams])
        )

    def _header(self) -> dict[str, Any]:
        """The public description that the output begins with."""
        privacy = self.config.privacy
        bounds = {"max_contributions": privacy.contributions, "max_per_key": privacy.max_per_key}
        guarantee = {**self.guarantee().as_json(), **bounds}
        return {"hushgram": self.kind, "version": 1, "name": self.name, "guarantee": guarantee}

    def check_lines(self) -> Iterator[Line]:
        for stream in self.streams:
            yield from _about_stream(stream, self.config.privacy.max_per_key)

    def closing_lines(self, path: str) -> Iterator[Line]:
        rows = _rows(path)
        for stream in self.streams:
            own = [row for row in rows if row["stream"] == stream.name]
            above = sum(row.get("above", False) for row in own)
            halted = next((row for row in own if row.get("halted")), None)
            end = f"halted after {halted['after']}" if halted else "answered to the end"
            asked, bar = len(stream.queries), stream.params.threshold
            yield stream.name, f"{above:,} of {asked:,} above {bar:,}; {end}"

    def released(self, path: str) -> pa.Table:
        answers = [row for row in _rows(path) if "id" in row]
        return pa.Table.from_pylist(answers, pa.schema(_COLUMNS))


def _queries(stream: StreamConfig, label: str) -> tuple[Query, ...]:
    """The queries of a stream, from its file or from the config."""
    if stream.path is not None:
        return tuple(read_queries(read_text(stream.path, "stream.path").split("\n"), stream.path))
    inline = stream.queries or ()
    parsed = (parse_query(query, i, f"{label}.queries[{i}]") for i, query in enumerate(inline))
    return tuple(check_stream(parsed, label))


def _write(
    released: list[tuple[str, StreamAnswers]], path: str, header: dict[str, Any], streams: list[StreamHeader]
) -> str:
    return write_lines(path, answer_lines(header, streams, dict(released)))


def _rows(path: str) -> list[dict[str, Any]]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file][1:]


def _about_stream(stream: Stream, max_per_key: int) -> Iterator[Line]:
    p, noise = stream.params, stream.params.noise
    kinds = Counter(query.kind.name for query in stream.queries)
    said = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    values = "" if noise.value is None else f", values {float(noise.value):,.1f}"
    stated = accuracy(p, len(stream.queries), stream.beta)
    cost = f"epsilon {show(p.epsilon)}" + (f", delta {show(p.delta)}" if p.delta else "")
    yield stream.name, f"{len(stream.queries):,} queries ({said}), {cost}"
    yield "", f"threshold {p.threshold:,}, halts after {p.cutoff:,} yes-answers, answers: {p.answers}"
    yield "", f"sensitivity {p.sensitivity}, monotone: derived from query kinds and bounds"
    if len(kinds) > 1 and kinds["key"] and p.sensitivity > max_per_key:
        yield "", "(key queries have a lower sensitivity: in a stream of their own they need less noise)"
    yield "", _FORMS[noise.form]
    yield (
        "",
        f"noise scales: threshold {float(noise.threshold):,.1f}, queries {float(noise.query):,.1f}{values}",
    )
    yield (
        "",
        (
            f"accuracy: with probability {1 - float(stream.beta):.0%} every answer is right whose exact count is "
            f"further than {stated['alpha']:,} from the threshold (by the textbook's theorem: "
            f"{stated['alpha_of_theorem']:,})"
        ),
    )


JOB = SparseVectorJob


# The answers of a sparse-vector job as JSON lines: a header, a line a query, a line for each stream that halted.
#
#     {"hushgram": "sparse-vector", "version": 1, "name": ..., "guarantee": {...}, "streams": [{...}]}
#     {"stream": "alerts", "id": "q1", "seq": 0, "above": false}
#     {"stream": "alerts", "id": "q2", "seq": 1, "above": true, "gap": 41}
#     {"stream": "alerts", "halted": true, "after": "q2", "unanswered": 9998}
#
# Everything in it is public: parameters, and what the mechanism released.


@dataclass(frozen=True)
class StreamHeader:
    """One stream as the header describes it; of its queries only the ids travel to the worker that writes.

    ``ids`` is None where all queries have the name that their sequence number gives.
    """

    name: str
    size: int
    ids: tuple[str, ...] | None
    params: SvtParams
    beta: Fraction

    def fields(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "stream": self.name,
            "queries": self.size,
            "mechanism": "above_threshold" if self.params.cutoff == 1 else "sparse",
            **self.params.describe(),
            "accuracy": accuracy(self.params, self.size, self.beta),
        }


def accuracy(params: SvtParams, queries: int, beta: Fraction) -> dict[str, Any]:
    """α at this β: of the mechanism as it runs, and of the textbook's theorem for the same parameters."""
    return {
        "beta": show(beta),
        "alpha": alpha(params, queries, beta),
        "alpha_of_theorem": theorem_alpha(params, queries, beta),
        "words": "with probability 1 - beta, an answer whose exact count is further than alpha from the "
        "threshold is right, provided at most cutoff queries reach threshold - alpha",
    }


def answer_lines(
    header: Mapping[str, Any], streams: Iterable[StreamHeader], released: Mapping[str, StreamAnswers]
) -> Iterator[dict[str, Any]]:
    """The file, line by line; streams in the order of the header."""
    held = list(streams)
    yield {**header, "streams": [stream.fields() for stream in held]}
    for stream in held:
        yield from _stream_lines(stream, released[stream.name])


def _stream_lines(stream: StreamHeader, released: StreamAnswers) -> Iterator[dict[str, Any]]:
    params = stream.params
    answered = int(np.sum(released.outcome != HALTED))
    estimates = refine(params, released.gap, released.value) if params.answers == "numeric" else None
    numbers = released.sequence.tolist()
    ids = [default_id(number) for number in numbers] if stream.ids is None else stream.ids
    for i in range(answered):
        above = bool(released.outcome[i] == ABOVE)
        fields: dict[str, Any] = {"stream": stream.name, "id": ids[i], "seq": numbers[i], "above": above}
        if above and params.answers != "none":
            fields["gap"] = int(released.gap[i])
        if above and estimates is not None:
            fields["value"] = int(released.value[i])
            fields["estimate"] = round(float(estimates[i]), 1)
        yield fields
    if int(np.sum(released.outcome == ABOVE)) >= params.cutoff:
        left = stream.size - answered
        yield {"stream": stream.name, "halted": True, "after": ids[answered - 1], "unanswered": left}
