"""``hushgram answer``: many linear queries over a finite domain, by online private multiplicative weights.

    read ─► keep the domain's keys ─► bound users ─► count cells ─► AnswerLinear ─► answers, hypothesis, manifest

For one release key and one input the output has the same bytes on every runner.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from hushgram.accounting import Event, Guarantee
from hushgram.domains import BucketDomain, FiniteDomain, KeyDomain, RangeDomain
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.pipelines.config import AS_TUPLE, Exact, JobConfig, Model, Name, refuse
from hushgram.pipelines.jobs.files import heavy_domain, read_bytes, read_key_list, write_bytes
from hushgram.pipelines.jobs.job import Job, Line, LocalResources, Pipeline
from hushgram.pmw.expected import expected_errors
from hushgram.pmw.mechanism import PmwParams, prior_weights
from hushgram.pmw.offline import OfflineParams, check_size
from hushgram.pmw.synthetic import (
    ANSWERS,
    MANIFEST,
    LinearQuery,
    Outcome,
    SyntheticHistogram,
    read_queries,
    workloads,
)
from hushgram.pmw.workload import GRID

__all__ = ["JOB", "Answer", "AnswerConfig", "AnswerDomain", "PmwConfig", "QueriesFile"]


class AnswerDomain(Model):
    """What the queries speak about: one of four kinds, all public."""

    keys: str | None = Field(default=None, description="a file with one key a line")
    sketch: str | None = Field(default=None, description="a released sketch: its heavy keys are the domain")
    buckets: int | None = Field(
        default=None, ge=1, le=1 << 20, description="hash all keys to so many buckets, such as 1024"
    )
    edges: tuple[float, ...] | None = Field(
        default=None, description="ranges of a numeric key, such as [0, 18, 30, 50, 120]"
    )

    @field_validator("edges", mode="before")
    @classmethod
    def _edges(cls, value: Any) -> Any:
        return tuple(float(edge) for edge in value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in ("keys", "sketch", "buckets", "edges") if getattr(self, name) is not None]
        if len(given) != 1:
            raise refuse(
                (), f"must have exactly one of keys, sketch, buckets, edges, got {', '.join(given) or 'none'}"
            )
        return self


class QueriesFile(Model):
    """Linear queries: a file of JSON lines, or the queries themselves."""

    path: str | None = Field(default=None, description="JSON lines, one query each, such as queries.jsonl")
    queries: Annotated[tuple[dict[str, Any], ...] | None, AS_TUPLE] = Field(
        default=None,
        description='the queries themselves, such as [{keys: ["/a", "/b"]}, {weights: {"/a": 0.5}}]',
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.path is None) == (self.queries is None):
            raise refuse(("path",), "or queries is needed, and not both")
        return self


class PmwConfig(Model):
    """The mechanism. Left out, thresholds follow from the noise; ``alpha`` takes them from the theorem."""

    mode: Literal["online", "offline"] = Field(
        default="online",
        description="online answers in the order of the file; offline corrects the worst first",
    )
    rounds: int | None = Field(
        default=None, ge=1, le=4096, description="measurements of mode offline, such as 200"
    )
    stop: Exact | None = Field(default=None, description="error in counts at which mode offline stops early")
    max_updates: int | None = Field(
        default=None, ge=1, le=100_000, description="updates allowed, such as 400"
    )
    threshold: Exact | None = Field(default=None, description="error in counts that calls for an update")
    total: int | None = Field(default=None, ge=1, description="records in the domain, if that is public")
    replay: int | None = Field(default=None, ge=0, le=1000, description="steps over past answers, such as 2")
    eta: Exact | None = Field(default=None, description="rate of the plain update, where replay is 0")
    alpha: Exact | None = Field(
        default=None, description="error as a share of the total: all parameters from the theorem"
    )
    beta: Exact = Field(default=Fraction(1, 20), description="probability that alpha is exceeded")
    prior: str | None = Field(
        default=None, description="a released sketch to begin from instead of the uniform histogram: free"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        others = (
            ("max_updates", "threshold", "eta", "alpha") if self.mode == "offline" else ("rounds", "stop")
        )
        for name in others:
            if getattr(self, name) is not None:
                raise refuse((name,), f"has no meaning in mode {self.mode}; leave it out or change pmw.mode")
        if self.alpha is None:
            return self
        for name in ("max_updates", "threshold", "replay", "eta"):
            if getattr(self, name) is not None:
                raise refuse((name,), "and alpha exclude each other: alpha sets it")
        if self.total is None:
            raise refuse(("total",), "is missing; alpha needs a public number of records")
        return self


class AnswerConfig(JobConfig):
    """Many linear queries over a finite domain, answered by online private multiplicative weights."""

    NAME: ClassVar[str] = "answer"

    answer: Name = Field(description="the name of this run, such as visits-{date}")
    domain: AnswerDomain
    queries: QueriesFile
    pmw: PmwConfig = PmwConfig()

    @field_validator("queries", mode="before")
    @classmethod
    def _inline(cls, value: Any) -> Any:
        return {"queries": value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _prior(self) -> Self:
        if self.pmw.prior is not None and self.domain.keys is None:
            raise refuse(
                ("pmw", "prior"), "needs domain.keys; a domain from a sketch begins from that sketch"
            )
        return self

    def params(self, cells: int, queries: int) -> PmwParams | OfflineParams:
        """The mechanism's parameters for so many cells and queries."""
        privacy, pmw = self.privacy, self.pmw
        if pmw.mode == "offline":
            check_size(queries, cells)
            names = ("rounds", "total", "replay", "stop")
            given = {name: getattr(pmw, name) for name in names if getattr(pmw, name) is not None}
            given.setdefault("rounds", min(200, queries))
            return OfflineParams(
                privacy.epsilon, delta=privacy.delta, max_contributions=privacy.contributions, **given
            )
        common: dict[str, Any] = {
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "max_contributions": privacy.contributions,
            "queries": queries,
        }
        if pmw.alpha is not None and pmw.total is not None:  # the config checks that both are there
            return PmwParams.from_accuracy(pmw.alpha, cells=cells, total=pmw.total, beta=pmw.beta, **common)
        online = ("max_updates", "threshold", "total", "replay", "eta")
        given = {name: getattr(pmw, name) for name in online if getattr(pmw, name) is not None}
        return PmwParams(**common, **given)


class Answer(Job[AnswerConfig]):
    """Domain, queries, parameters and prior: nothing of it depends on the records."""

    Config = AnswerConfig
    subject = "Answers and hypothesis together are"
    shape = "directory"

    def resolve(self) -> None:
        config = self.config
        self.cells, self.prior = _domain(config.domain)
        self.queries = tuple(_queries(config.queries))
        for query in self.queries:
            self.cells.row(query.fields, f"query {query.id}")  # unknown keys and wrong weights show here
        if config.pmw.prior is not None:
            from hushgram.sketch.reader import Sketch

            estimates = Sketch.open(config.pmw.prior).estimate(list(self.cells.labels), interval=None)
            self.prior = prior_weights(estimates.column("estimate").to_numpy())
        self.params = config.params(len(self.cells), len(self.queries))

    def events(self) -> list[Event]:
        """The stream, and the total where it is not public."""
        epsilon, delta = self.params.guarantee()
        details = {"mode": self.config.pmw.mode, "cells": str(len(self.cells))}
        events = [
            Event("pmw", epsilon - self.params.total_epsilon, delta, details=details, relation=self.unit)
        ]
        if self.params.total_epsilon:
            events.append(
                Event("laplace", self.params.total_epsilon, details={"of": "total"}, relation=self.unit)
            )
        return events

    def resolved(self) -> dict[str, Any]:
        return {
            "pmw": repr(self.params),
            "domain": digest(*self.cells.labels).hex(),
            "queries": digest(*(json.dumps(dict(q.fields)) for q in self.queries)).hex(),
            "prior": None if self.prior is None else digest(self.prior).hex(),
        }

    def build(self, pipeline: Pipeline, path: str, release_key: ReleaseKey, local: LocalResources) -> None:
        import apache_beam as beam

        from hushgram.pipelines.jobs.stages import bounded_cells
        from hushgram.transforms.answer_linear_queries import AnswerLinear
        from hushgram.transforms.count_domain import CountDomain

        answer = AnswerLinear(
            self.cells, self.queries, self.params, release_key=release_key, prior=self.prior, unit=self.unit
        )
        told = (self.queries, self.cells, self.params, self.name, self.guarantee())
        _ = (
            bounded_cells(pipeline, self, self.cells, release_key, local)
            | "CountDomain" >> CountDomain(self.cells)
            | "AnswerLinear" >> answer  # Outcome
            | "WriteAnswers" >> beam.Map(_write, path, told)
        )

    def check_lines(self) -> Iterator[Line]:
        params, cells, queries = self.params, len(self.cells), len(self.queries)
        stated = params.describe(queries)["accuracy"]
        if isinstance(params, OfflineParams):
            most, comparing, measuring = params.rounds, 1 / params.rate, params.scale
            until = "if it stops early"
        else:
            noise = params.svt.noise
            most, comparing, measuring = params.max_updates, noise.query, noise.value or Fraction(0)
            until = f"while updates last (threshold {params.svt.threshold / GRID:,.1f})"
        yield "queries", f"{queries:,} queries over {cells:,} cells, at most {most:,} updates"
        yield "start", "a released sketch" if self.prior is not None else "the uniform histogram"
        yield (
            "noise",
            f"scales in counts: {'choices' if self.config.pmw.mode == 'offline' else 'comparisons'} "
            f"{float(comparing) / GRID:,.1f}, measured answers {float(measuring) / GRID:,.1f}",
        )
        yield (
            "accuracy",
            f"with probability 95 %, measured answers are within {stated['measured']:,.0f} counts, and answers from "
            f"the hypothesis within {stated['hypothesis']:,.0f} {until}",
        )
        yield "expect", self._expected()
        width, tail = float(params.max_contributions / params.epsilon), math.log(40 * queries)
        rival = max(width * math.sqrt(2 * cells) * math.sqrt(2 * tail), width * tail)
        yield (
            "else",
            f"a Laplace histogram of the {cells:,} cells would answer all of them within about {rival:,.0f} "
            "(see docs/choosing.md)",
        )

    def _expected(self) -> str:
        """Worst errors of online, offline and plain Laplace on made-up counts."""
        params, queries = self.params, next(workloads(self.queries, self.cells))
        found = expected_errors(
            queries,
            epsilon=self.config.privacy.epsilon,
            delta=self.config.privacy.delta,
            max_contributions=params.max_contributions,
            total=params.total,
            count=len(self.queries),
            online=params if isinstance(params, PmwParams) else None,
            offline=params if isinstance(params, OfflineParams) else None,
        )
        return (
            f"worst error on made-up counts of {found.records:,} records: online {found.online:,.0f}, offline "
            f"{found.offline:,.0f}, Laplace on each {found.laplace:,.0f}; best: {found.best}"
        )

    def closing_lines(self, path: str) -> Iterator[Line]:
        manifest = SyntheticHistogram.open(path).manifest
        told = ", ".join(f"{count:,} {words}" for words, count in manifest["answers"].items())
        parameters = manifest["parameters"]
        most = parameters.get("max_updates", parameters.get("rounds"))
        yield "answers", f"{told}; {manifest['updates']} of {most} updates"
        if manifest["answers"]["hypothesis alone"]:
            yield "", "the update bound was reached: answers marked «hypothesis alone» carry no error bound"

    def released(self, path: str) -> pa.Table:
        with open(f"{path}/{ANSWERS}", encoding="utf-8") as file:
            return pa.Table.from_pylist([json.loads(line) for line in file])


def _domain(config: AnswerDomain) -> tuple[FiniteDomain, NDArray[np.int64] | None]:
    """The cells, and the prior that comes with them where they are a sketch's heavy keys."""
    if config.keys is not None:
        return KeyDomain.of(read_key_list(config.keys, "domain.keys")), None
    if config.buckets is not None:
        return BucketDomain(config.buckets), None
    if config.edges is not None:
        return RangeDomain(config.edges), None
    domain, values = heavy_domain(str(config.sketch), "domain.sketch")
    return domain, prior_weights(values)


def _queries(config: QueriesFile) -> list[LinearQuery]:
    if config.path is not None:
        return read_queries(read_bytes(config.path, "queries.path").splitlines(), config.path)
    # YAML numbers come as exact decimals
    return read_queries((json.dumps(fields, default=float) for fields in config.queries or ()), "queries")


def _write(
    outcome: Outcome,
    path: str,
    told: tuple[tuple[LinearQuery, ...], FiniteDomain, PmwParams | OfflineParams, str, Guarantee],
) -> str:
    from apache_beam.io.filesystems import FileSystems

    files = outcome.files(*told)
    for file in [*(f for f in files if f != MANIFEST), MANIFEST]:
        write_bytes(FileSystems.join(path, file), files[file])
    return path


JOB = Answer
