"""``hushgram sparse-vector``: which queries of a stream are above a threshold?

    read ─┬─► bound by (user, key) ────► count keys and prefixes ──┐
          └─► draw records of users ──► count ranges and wheres ──┴─► sum ─► SparseVector ─► answers.jsonl

For one release key and one input the file has the same bytes on every runner.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from hushgram.accounting import Event
from hushgram.errors import ParameterError
from hushgram.inputs.conditions import kinds_together
from hushgram.mechanisms.svt.accuracy import alpha, refine, theorem_alpha
from hushgram.mechanisms.svt.exact_answers import QueryPlan
from hushgram.mechanisms.svt.histogram import HistogramParams
from hushgram.mechanisms.svt.mechanism import ABOVE, HALTED
from hushgram.mechanisms.svt.params import SvtParams, margin_for
from hushgram.mechanisms.svt.queries import (
    Query,
    check_stream,
    compact,
    default_id,
    parse_query,
    read_queries,
    sensitivity,
)
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.numbers import counted, show
from hushgram.pipelines.config.models import AS_TUPLE, Exact, JobConfig, Model, Name, QueriesConfig, refuse
from hushgram.pipelines.jobs.job import (
    Job,
    Line,
    LocalResources,
    Pipeline,
    read_lines,
    read_text,
    write_lines,
)
from hushgram.sensitivity import PrivacyUnit, Sensitivity

if TYPE_CHECKING:
    from hushgram.transforms.sparse_vector import StreamAnswers

__all__ = ["JOB", "SparseVectorConfig", "SparseVectorJob", "Stream", "StreamConfig", "SvtConfig"]


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

    mechanism: Literal["above_threshold", "sparse"] = Field(
        default="sparse", description="sparse, or above_threshold, which halts at the first yes-answer"
    )
    threshold: int = Field(
        description="a query is above the threshold if its answer is at least this, such as 1000"
    )
    method: Literal["auto", "sparse-vector", "histogram"] = Field(
        default="auto",
        description="sparse-vector pays for yes-answers; histogram adds noise to every answer; auto takes the one with "
        "less noise",
    )
    cutoff: int | None = Field(
        default=None,
        ge=1,
        le=20_000,
        description="number of yes-answers after which the stream halts, such as 20",
    )
    answers: Literal["none", "gap", "numeric"] = Field(
        default="none", description="what a yes-answer includes: nothing, the gap (free), or a noisy value"
    )
    variant: Literal["optimal", "dwork-roth"] = Field(
        default="optimal", description="how noise is split; dwork-roth is the textbook's"
    )
    margin: int | None = Field(
        default=None,
        ge=0,
        description="added to the threshold so that noise alone rarely reaches it, such as 50; left out, it follows "
        "from the noise and the number of queries",
    )
    value_share: Exact = Field(
        default=Fraction(1, 2), description="share of epsilon for the values, where answers is numeric"
    )
    beta: Exact = Field(
        default=Fraction(1, 20), description="probability with which the stated accuracy may fail"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mechanism == "above_threshold" and self.cutoff not in (None, 1):
            raise refuse(("cutoff",), "must be 1 or left out where mechanism is above_threshold")
        if self.method == "histogram":
            for name, plain in (("mechanism", "sparse"), ("variant", "optimal"), ("margin", None)):
                if getattr(self, name) != plain:
                    raise refuse((name,), "has no meaning where method is histogram; leave it out")
        elif self.mechanism == "sparse" and self.cutoff is None:
            raise refuse(
                ("cutoff",), "is missing; give the number of yes-answers after which to halt, such as 20"
            )
        if not 0 < self.beta < 1:
            raise refuse(("beta",), f"must be above 0 and below 1, got {self.beta}; 0.05 is common")
        if not 0 < self.value_share < 1:
            raise refuse(("value_share",), f"must be above 0 and below 1, got {self.value_share}")
        if self.variant == "dwork-roth" and self.margin:
            raise refuse(("margin",), "must be left out where variant is dwork-roth")
        return self


class StreamConfig(QueriesConfig):
    """One stream of queries."""

    name: Name | None = Field(default=None, description="the name of this stream in the output")
    share: Exact | None = Field(
        default=None, description="share of the budget where there are several streams; equal if left out"
    )
    svt: SvtConfig | None = Field(
        default=None, description="parameters of the mechanism for this stream alone"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.share is not None and not 0 < self.share <= 1:
            raise refuse(("share",), f"must be above 0 and at most 1, got {self.share}")
        return self


class SparseVectorConfig(JobConfig):
    """Find which queries of a stream are above a threshold."""

    NAME: ClassVar[str] = "sparse_vector"

    sparse_vector: Name = Field(description="the name of this run, such as alerts-{date}")
    stream: StreamConfig | None = Field(default=None, description="the stream of queries")
    streams: Annotated[tuple[StreamConfig, ...] | None, AS_TUPLE] = None
    svt: SvtConfig | None = Field(default=None, description="parameters of the mechanism")

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
        """The streams, in order."""
        return (self.stream,) if self.stream is not None else self.streams or ()


#: the parameters of a stream, and why these
Chosen = tuple[SvtParams | HistogramParams, str]


@dataclass(frozen=True)
class Stream:
    """A stream as its header describes it: small, since it travels to the worker that writes.

    ``ids`` is None where all queries have the name that their sequence number gives.
    """

    name: str
    size: int
    ids: tuple[str, ...] | None
    params: SvtParams | HistogramParams
    beta: Fraction
    why: str  # this method

    @classmethod
    def of(cls, name: str, queries: Sequence[Query], chosen: Chosen, beta: Fraction) -> Stream:
        """Return the stream of these queries."""
        named = any(query.id != default_id(query.sequence) for query in queries)
        return cls(
            name, len(queries), tuple(q.id for q in queries) if named else None, chosen[0], beta, chosen[1]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the stream for the header of the output."""
        return {
            "stream": self.name,
            "queries": self.size,
            "mechanism": self.mechanism,
            **self.params.describe(),
            "accuracy": self.accuracy(),
        }

    @property
    def mechanism(self) -> str:
        """The name of the mechanism in the header."""
        if isinstance(self.params, HistogramParams):
            return "histogram"
        return "above_threshold" if self.params.cutoff == 1 else "sparse"

    def accuracy(self) -> dict[str, Any]:
        """Return α at this β: of the mechanism as it runs, and of the textbook's theorem for the same parameters."""
        if isinstance(self.params, HistogramParams):
            return {
                "beta": show(self.beta),
                "alpha": self.params.error(self.size, self.beta),
                "words": "with probability 1 - beta, every value is within alpha of the exact count",
            }
        return {
            "beta": show(self.beta),
            "alpha": alpha(self.params, self.size, self.beta),
            "alpha_of_theorem": theorem_alpha(self.params, self.size, self.beta),
            "words": "with probability 1 - beta, an answer whose exact count is further than alpha from the "
            "threshold is right, provided at most cutoff queries reach threshold - alpha",
        }

    def events(self, unit: PrivacyUnit) -> Iterator[Event]:
        """Yield what the stream costs: the selection, and the values where they are released."""
        p, details = self.params, {"stream": self.name}
        if isinstance(p, HistogramParams):
            details |= {"of": "every answer", "l1": str(p.sensitivity.l1), "scale": show(p.scale)}
            delta = p.delta if p.noise.name == "gaussian" else 0
            yield Event(p.noise.name, p.epsilon, delta, details=details, relation=unit)
            return
        details |= {"sensitivity": str(p.sensitivity), "cutoff": str(p.cutoff), "variant": p.variant}
        share, version = p.value_share, 2 if p.noise.one_sided else 1
        yield Event("svt", p.epsilon * (1 - share), p.delta * (1 - share), details, version, relation=unit)
        if share:
            yield Event("laplace", p.epsilon * share, p.delta * share, details, relation=unit)

    def lines(self, released: StreamAnswers) -> Iterator[dict[str, Any]]:
        """Yield the lines of the output: one per answered query, and one where the stream halted."""
        params, numbers = self.params, released.sequence.tolist()
        ids = [default_id(number) for number in numbers] if self.ids is None else self.ids
        if isinstance(params, HistogramParams):
            columns = (ids, numbers, (released.outcome == ABOVE).tolist(), released.value.tolist())
            for name, number, over, value in zip(*columns, strict=True):
                yield {"stream": self.name, "id": name, "seq": number, "above": over, "value": value}
            return
        answered = int(np.sum(released.outcome != HALTED))
        estimates = refine(params, released.gap, released.value) if params.answers == "numeric" else None
        for i in range(answered):
            above = bool(released.outcome[i] == ABOVE)
            fields: dict[str, Any] = {"stream": self.name, "id": ids[i], "seq": numbers[i], "above": above}
            if above and params.answers != "none":
                fields["gap"] = int(released.gap[i])
            if above and estimates is not None:
                fields["value"] = int(released.value[i])
                fields["estimate"] = round(float(estimates[i]), 1)
            yield fields
        if int(np.sum(released.outcome == ABOVE)) >= params.cutoff:
            left = self.size - answered
            yield {"stream": self.name, "halted": True, "after": ids[answered - 1], "unanswered": left}


class SparseVectorJob(Job[SparseVectorConfig]):
    """Streams of queries over bounded contributions, answered by the sparse vector technique."""

    Config = SparseVectorConfig
    subject = "All answers together are"

    def resolve(self) -> None:
        config, streams = self.config, self.config.all_streams
        self.streams: list[Stream] = []
        self.queries: list[tuple[Query, ...]] = []  # of each stream
        for i, stream in enumerate(streams):
            svt = stream.svt or config.svt
            if svt is None:  # the config checks this
                raise ParameterError("svt is missing")
            queries = _queries(stream, "stream" if config.streams is None else f"streams[{i}]")
            share = Fraction(1, len(streams)) if stream.share is None else stream.share
            name = stream.name or (self.name if len(streams) == 1 else f"stream-{i + 1}")
            self.streams.append(Stream.of(name, queries, self._choose(svt, queries, share), svt.beta))
            self.queries.append(queries)
        self._all = list(chain.from_iterable(self.queries))

    def _choose(self, svt: SvtConfig, queries: tuple[Query, ...], share: Fraction) -> Chosen:
        """Return the parameters of a stream, and why these: the method with less noise, by public numbers alone."""
        privacy = self.config.privacy
        budget: dict[str, Any] = {"epsilon": privacy.epsilon * share, "delta": privacy.delta * share}
        sparse: SvtParams | None = None
        if svt.method != "histogram":
            sparse = SvtParams(
                **budget,
                threshold=svt.threshold,
                cutoff=1 if svt.cutoff is None else svt.cutoff,
                sensitivity=sensitivity(queries, privacy.contributions, privacy.max_per_key),
                monotone=True,  # counts under add/remove: see hushgram.mechanisms.svt.queries
                variant=svt.variant,
                answers=svt.answers,
                value_share=svt.value_share,
            )
            margin = margin_for(sparse, len(queries)) if svt.margin is None else svt.margin
            sparse = dataclasses.replace(sparse, margin=margin) if margin else sparse
            asked = svt.method == "sparse-vector" or svt.variant == "dwork-roth"
            if asked or svt.mechanism == "above_threshold":
                return sparse, "as the config asks for it"
        moved = self._vector(queries)
        every = HistogramParams(**budget, threshold=svt.threshold, sensitivity=moved)
        if sparse is None:
            return every, "as the config asks for it"
        one, other = (math.sqrt(spread) for spread in (every.spread, sparse.noise.spread))
        compared = (
            f"standard deviation of the noise {one:,.1f} on every answer, {other:,.1f} by sparse vector"
        )
        return (every if one <= other else sparse), compared

    def _vector(self, queries: tuple[Query, ...]) -> Sensitivity:
        """Return the sensitivity of the vector of all answers, with the column types that the queries suggest.

        The input may not be there yet; `check_schema` compares with its own types.
        """
        privacy, key = self.config.privacy, self.config.input.key
        bounds = Sensitivity(privacy.contributions, privacy.max_per_key, self.unit)
        types = kinds_together(query.kind.column_types for query in queries)
        names = dict.fromkeys((key, *(name for query in queries for name in query.kind.columns)))
        schema = pa.schema([(name, types.get(name, pa.string())) for name in names])
        try:
            return QueryPlan(queries, schema, key).sensitivity(bounds)
        except ParameterError:  # the input has other types, or refuses the query too
            return bounds.added_up().times(len(queries))

    def columns(self) -> Iterable[str]:
        return dict.fromkeys(name for query in self._all for name in query.kind.columns)

    def column_types(self) -> dict[str, pa.DataType]:
        return kinds_together(query.kind.column_types for query in self._all)

    def check_schema(self, schema: pa.Schema) -> None:
        self.plan = QueryPlan(self._all, schema, self.config.input.key)
        privacy = self.config.privacy
        bounds = Sensitivity(privacy.contributions, privacy.max_per_key, self.unit)
        ends = np.cumsum([0, *map(len, self.queries)]).tolist()
        for stream, low, high in zip(self.streams, ends, ends[1:], strict=False):
            calibrated = stream.params.calibrated(self.unit)
            if not self.plan.sensitivity(bounds, low, high).within(calibrated):
                raise ParameterError(
                    f"stream {stream.name}: queries overlap more in the types of these columns than as they are "
                    "written; set svt.method to sparse-vector"
                )

    def events(self) -> list[Event]:
        return [event for stream in self.streams for event in stream.events(self.unit)]

    def resolved(self) -> dict[str, Any]:
        return {
            stream.name: {**stream.params.describe(), "queries": digest(repr(queries)).hex()}
            for stream, queries in zip(self.streams, self.queries, strict=True)
        }

    def build(self, pipeline: Pipeline, path: str, release_key: ReleaseKey, local: LocalResources) -> None:
        import apache_beam as beam

        from hushgram.transforms.sparse_vector import RECORD, AnswerQueries, PackRecords, SparseVector

        source, config = self.records(pipeline), self.config.input
        plan, parts = self.plan, {}
        if plan.reads_keys:
            bound = self.bounding(config.key, release_key, local, texts=plan.texts)
            parts["keys"] = source | "BoundKeys" >> bound
        if plan.reads_records:
            packed = source | "PackRecords" >> PackRecords(plan.record_schema, config.user)
            parts["records"] = packed | "BoundRecords" >> self.bounding(
                RECORD, release_key, local, texts=True, by_record=True
            )
        numbers = [
            (stream.name, compact([query.sequence for query in queries]))
            for stream, queries in zip(self.streams, self.queries, strict=True)
        ]
        params = {stream.name: stream.params for stream in self.streams}
        _ = (
            parts
            | "AnswerQueries" >> AnswerQueries(plan, numbers)  # (stream, (numbers, exact answers))
            | "SparseVector" >> SparseVector(params, release_key=release_key, online=False, unit=self.unit)
            | "Together" >> beam.combiners.ToList()  # [(stream, StreamAnswers), …]
            | "WriteAnswers" >> beam.Map(_write, path, self._header(), self.streams)
        )

    def _header(self) -> dict[str, Any]:
        """Return the public description that the output begins with."""
        privacy = self.config.privacy
        bounds = {"max_contributions": privacy.contributions, "max_per_key": privacy.max_per_key}
        guarantee = {**self.guarantee().as_json(), **bounds}
        return {"hushgram": self.kind, "version": 2, "name": self.name, "guarantee": guarantee}

    def check_lines(self) -> Iterator[Line]:
        for stream, queries in zip(self.streams, self.queries, strict=True):
            kinds = Counter(query.kind.name for query in queries)
            yield from _describe(stream, kinds, self.config.privacy.max_per_key)

    def exact_lines(self, exact: Mapping[str, int]) -> Iterator[Line]:
        if not (self.plan.reads_keys and self.plan.reads_records):  # bounded twice, records have no one share
            yield from super().exact_lines(exact)

    def closing_lines(self, path: str) -> Iterator[Line]:
        rows = read_lines(path)[1:]
        for stream in self.streams:
            own = [row for row in rows if row["stream"] == stream.name]
            above = sum(row.get("above", False) for row in own)
            halted = next((row for row in own if row.get("halted")), None)
            end = f"halted after {halted['after']}" if halted else "all answered"
            yield stream.name, f"{above:,} of {stream.size:,} above {stream.params.threshold:,}; {end}"

    def closing_table(self, path: str) -> pa.Table:
        """Return the queries above the threshold, with what was released of each."""
        found = self.released(path)
        found = found.filter(found.column("above")).drop_columns(["above", "seq"])
        alone = ["stream"] if len(self.streams) == 1 else []
        empty = [name for name in found.column_names if found.column(name).null_count == len(found)]
        return found.drop_columns(list(dict.fromkeys([*alone, *empty])) if len(found) else alone)

    def released(self, path: str) -> pa.Table:
        return pa.Table.from_pylist([row for row in read_lines(path) if "id" in row], pa.schema(_COLUMNS))


def _queries(stream: StreamConfig, label: str) -> tuple[Query, ...]:
    """Return the queries of a stream, from its file or from the config."""
    if stream.path is not None:
        return tuple(read_queries(read_text(stream.path, "stream.path").split("\n"), stream.path))
    inline = stream.queries or ()
    parsed = (parse_query(query, i, f"{label}.queries[{i}]") for i, query in enumerate(inline))
    return tuple(check_stream(parsed, label))


def _describe(stream: Stream, kinds: Mapping[str, int], max_per_key: int) -> Iterator[Line]:
    p, stated = stream.params, stream.accuracy()
    by_kind = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    if isinstance(p, HistogramParams):
        yield stream.name, f"{counted(stream.size, 'query')} ({by_kind}), {_cost(p)}"
        yield "", f"method: histogram, noise on every answer; threshold {p.threshold:,}, no cutoff"
        yield "", f"because: {stream.why}"
        moved = p.sensitivity
        yield "", f"one user moves all answers by at most {moved.l1:,} in L1 and {moved.max_per_key:,} each"
        yield "", f"noise scale: {float(p.scale):,.1f} ({p.noise.name})"
        yield (
            "",
            f"accuracy: with probability {1 - float(stream.beta):.0%} every value is within {stated['alpha']:,}",
        )
        return
    noise = p.noise
    values = "" if noise.value is None else f", values {float(noise.value):,.1f}"
    yield stream.name, f"{counted(stream.size, 'query')} ({by_kind}), {_cost(p)}"
    yield "", f"method: sparse-vector; because: {stream.why}"
    margin = f" with a margin of {p.margin:,}" if p.margin else ""
    yield "", f"threshold {p.threshold:,}{margin}, halts after {p.cutoff:,} yes-answers, answers: {p.answers}"
    yield "", f"sensitivity {p.sensitivity}, monotone: derived from query kinds and bounds"
    if len(kinds) > 1 and kinds["key"] and p.sensitivity > max_per_key:
        yield "", "(key queries have a lower sensitivity: in a stream of their own they need less noise)"
    yield "", _FORMS[noise.form]
    scales = f"threshold {float(noise.threshold):,.1f}, queries {float(noise.query):,.1f}{values}"
    yield "", f"noise scales: {scales}"
    yield (
        "",
        f"accuracy: with probability {1 - float(stream.beta):.0%} every answer is right whose exact count is further "
        f"than {stated['alpha']:,} from the threshold (by the textbook's theorem: {stated['alpha_of_theorem']:,})",
    )


def _cost(params: SvtParams | HistogramParams) -> str:
    delta = f", delta {show(params.delta)}" if params.delta else ""
    return f"epsilon {show(params.epsilon)}{delta}"


# The answers as JSON lines: a header, one line per query, one line for each stream that halted.
#
#     {"hushgram": "sparse-vector", "version": 2, "name": ..., "guarantee": {...}, "streams": [{...}]}
#     {"stream": "alerts", "id": "q1", "seq": 0, "above": false}
#     {"stream": "alerts", "id": "q2", "seq": 1, "above": true, "gap": 41}
#     {"stream": "pages", "id": "q3", "seq": 0, "above": true, "value": 1204}        with method histogram
#     {"stream": "alerts", "halted": true, "after": "q2", "unanswered": 9998}
#
# Everything in it is public: parameters, and what the mechanism released.


def _write(
    released: list[tuple[str, StreamAnswers]], path: str, header: dict[str, Any], streams: list[Stream]
) -> str:
    answers = dict(released)
    lines = (line for stream in streams for line in stream.lines(answers[stream.name]))
    return write_lines(path, [{**header, "streams": [s.to_dict() for s in streams]}, *lines])


JOB = SparseVectorJob
