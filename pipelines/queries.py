"""The query job: streams of queries over bounded contributions, answered by the sparse vector technique.

    job = resolve_queries(load_config("configs/alerts.yaml", [], QueriesConfig))   # checks everything,
    reads no data job.epsilon, job.events                                                        # the exact
    guarantee run_queries(job, path="out/answers.jsonl", secret=key)                         # one pass, one
    file

    read ─┬─► bound by (user, key) ────► count keys and prefixes ──┐
          └─► bound by (user, record) ─► count ranges and wheres ──┴─► sum ─► SparseVector ─► answers.jsonl

Everything that can be wrong with the config, the queries or the input's columns shows in `resolve_queries`,
before any budget is spent. For one release key and one input the file has the same bytes on every runner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from hushgram.accounting import Event
from hushgram.errors import InputError, ParameterError
from hushgram.inputs import InputPlan
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.pipelines.local_resources import run_stages
from hushgram.pipelines.queries_config import QueriesConfig, StreamConfig, SvtConfig
from hushgram.pipelines.queries_output import Header, StreamHeader, WriteAnswers
from hushgram.pipelines.source import plan_config
from hushgram.svt.exact_answers import QueryPlan, compact
from hushgram.svt.params import SvtParams
from hushgram.svt.queries import Query, check_stream, default_id, parse_query, read_queries, sensitivity
from hushgram.transforms.answer_queries import RECORD, AnswerQueries, PackRecords
from hushgram.transforms.bound_contributions import BoundContributions, CountRecords
from hushgram.transforms.files import open_file
from hushgram.transforms.read_records import read_records
from hushgram.transforms.shuffle.batching import LocalResources
from hushgram.transforms.shuffle.sharding import shards_for
from hushgram.transforms.sparse_vector import SparseVector

__all__ = ["QueriesJob", "Stream", "build_queries", "resolve_queries", "run_queries", "stream_queries"]

ANYWHERE = LocalResources()


@dataclass(frozen=True)
class Stream:
    """A stream with its queries in order and the parameters of its mechanism."""

    name: str
    queries: tuple[Query, ...]
    params: SvtParams
    beta: Fraction

    @property
    def ids(self) -> tuple[str, ...] | None:
        """The queries' names, in order; None where all are those that the sequence numbers give."""
        if all(query.id == default_id(query.sequence) for query in self.queries):
            return None
        return tuple(query.id for query in self.queries)

    @property
    def events(self) -> list[Event]:
        """What the stream costs: the selection, and the values where they are released."""
        p, share = self.params, self.params.value_share
        details = {"stream": self.name, "sensitivity": str(p.sensitivity), "cutoff": str(p.cutoff)}
        events = [Event("svt", p.epsilon * (1 - share), p.delta * (1 - share), details=details)]
        if share:
            events.append(Event("laplace", p.epsilon * share, p.delta * share, details=details))
        return events


@dataclass(frozen=True)
class QueriesJob:
    """A config made exact: nothing about it can fail any more but the reading of the data."""

    config: QueriesConfig
    streams: tuple[Stream, ...]
    source: InputPlan
    plan: QueryPlan

    @property
    def epsilon(self) -> Fraction:
        """ε of the whole job: streams over the same data compose."""
        return sum((stream.params.epsilon for stream in self.streams), Fraction(0))

    @property
    def delta(self) -> Fraction:
        """δ of the whole job."""
        return sum((stream.params.delta for stream in self.streams), Fraction(0))

    @property
    def events(self) -> list[Event]:
        """What the ledger charges."""
        return [event for stream in self.streams for event in stream.events]

    @property
    def parameters(self) -> dict[str, Any]:
        """All public choices that can change the output, for the ledger."""
        config = self.config
        streams = {
            stream.name: {**stream.params.describe(), "queries": digest(repr(stream.queries)).hex()}
            for stream in self.streams
        }
        return {
            "privacy": config.privacy.model_dump(),
            "input": config.input.model_dump(exclude={"path", "bad_records"}),
            "streams": streams,
        }

    @property
    def header(self) -> Header:
        """The public description that the output begins with."""
        config = self.config
        return Header(
            name=config.job_name,
            epsilon=self.epsilon,
            delta=self.delta,
            unit="record" if config.input.user is None else "user",
            max_contributions=config.privacy.contributions,
            max_per_key=config.privacy.max_per_key,
            streams=tuple(
                StreamHeader(s.name, len(s.queries), s.ids, s.params, s.beta) for s in self.streams
            ),
        )


def stream_queries(stream: StreamConfig, source: str) -> list[Query]:
    """The queries of a stream, from its file or from the config."""
    if stream.path is not None:
        return read_queries(_lines(stream.path), stream.path)
    inline = stream.queries or ()
    return check_stream((parse_query(q, i, f"{source}.queries[{i}]") for i, q in enumerate(inline)), source)


def _lines(path: str) -> Iterable[str]:
    try:
        with open_file(path) as file:
            content: bytes = file.read()
    except InputError as problem:
        raise InputError(f"stream.path {problem}") from None
    try:
        return content.decode().split("\n")
    except UnicodeDecodeError:
        raise InputError(f"stream.path {path}: is not UTF-8 text") from None


def resolve_queries(config: QueriesConfig) -> QueriesJob:
    """Queries, sensitivities, parameters and the input's columns; every mistake is one line."""
    several = config.streams is not None
    labels = [f"streams[{i}]" if several else "stream" for i in range(len(config.all_streams))]
    queries = [stream_queries(s, label) for s, label in zip(config.all_streams, labels, strict=True)]
    streams = tuple(
        _stream(config, i, stream, tuple(held))
        for i, (stream, held) in enumerate(zip(config.all_streams, queries, strict=True))
    )
    together = [query for held in queries for query in held]
    columns = dict.fromkeys(name for query in together for name in query.columns)
    extra = [name for name in columns if name not in config.input.columns]
    source = plan_config(config.input, extra)
    return QueriesJob(config, streams, source, QueryPlan(together, source.schema, config.input.key))


def _stream(config: QueriesConfig, i: int, stream: StreamConfig, queries: tuple[Query, ...]) -> Stream:
    svt: SvtConfig | None = stream.svt or config.svt
    if svt is None:  # the config checks this
        raise ParameterError("svt is missing")
    share = Fraction(1, len(config.all_streams)) if stream.share is None else stream.share
    params = SvtParams(
        epsilon=config.privacy.epsilon * share,
        delta=config.privacy.delta * share,
        threshold=svt.threshold,
        cutoff=svt.halts_after,
        sensitivity=_sensitivity(config, queries),
        monotone=True,  # counts under add/remove: see hushgram.svt.queries
        variant=svt.variant,
        answers=svt.answers,
        value_share=svt.value_share,
    )
    default = config.job_name if len(config.all_streams) == 1 else f"stream-{i + 1}"
    return Stream(stream.name or default, queries, params, svt.beta)


def _sensitivity(config: QueriesConfig, queries: Iterable[Query]) -> int:
    max_contributions = config.privacy.contributions
    if config.input.user is None:  # a record counts one, wherever it counts; max_contributions for caution
        return max_contributions
    return sensitivity(queries, max_contributions, config.privacy.max_per_key)


def run_queries(
    job: QueriesJob,
    *,
    path: str | Path,
    release_key: ReleaseKey,
    options: PipelineOptions | None = None,
    quiet: bool = True,
) -> Any:
    """Runs the job and writes its answers to ``path``; returns Beam's result."""
    return run_stages(job, build_queries, path=path, release_key=release_key, options=options, quiet=quiet)


def build_queries(
    pipeline: beam.Pipeline,
    job: QueriesJob,
    path: str,
    release_key: ReleaseKey,
    local: LocalResources = ANYWHERE,
) -> None:
    """The job's stages, from the files to the answers."""
    records = read_records(pipeline, job.source, job.config.input.bad_records)
    parts = {}
    if job.plan.reads_keys:
        bound = _bounding(job, job.config.input.key, release_key, job.plan.texts, local)
        parts["keys"] = records | "BoundKeys" >> bound
    if job.plan.reads_records:
        packed = records | "PackRecords" >> PackRecords(job.plan.record_schema, job.config.input.user)
        bound = _bounding(job, RECORD, release_key, True, local)
        parts["records"] = packed | "BoundRecords" >> bound
    numbers = [(stream.name, compact([q.sequence for q in stream.queries])) for stream in job.streams]
    params = {stream.name: stream.params for stream in job.streams}
    _ = (
        parts
        | "AnswerQueries" >> AnswerQueries(job.plan, numbers)  # (stream, (numbers, exact answers))
        | "SparseVector"
        >> SparseVector(params, release_key=release_key, online=False)  # (stream, StreamAnswers)
        | "WriteAnswers" >> WriteAnswers(path, job.header)
    )


def _bounding(
    job: QueriesJob, key: str, release_key: ReleaseKey, texts: bool, local: LocalResources
) -> beam.PTransform:
    config = job.config
    if config.input.user is None:
        return CountRecords(key, texts=texts, local=local)
    return BoundContributions(
        config.input.user,
        key,
        release_key,
        max_contributions=config.privacy.contributions,
        max_per_key=config.privacy.max_per_key,
        texts=texts,
        shards=shards_for(job.source.bytes, config.shards).users,
        local=local,
    )
