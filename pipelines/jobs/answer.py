"""``hushgram answer``: many linear queries over a finite domain, by online private multiplicative weights.

    read ─► keep the domain's keys ─► bound users ─► count cells ─► AnswerLinear ─► answers, hypothesis, manifest

For one release key and one input the output has the same bytes on every runner.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from hushgram.accounting import Event, Guarantee
from hushgram.mechanisms.domains import BucketDomain, FiniteDomain, KeyDomain, RangeDomain
from hushgram.mechanisms.pmw.mechanism import (
    OfflineParams,
    PmwParams,
    check_size,
    expected_errors,
    prior_weights,
)
from hushgram.mechanisms.pmw.synthetic import (
    ANSWERS,
    MANIFEST,
    LinearQuery,
    ReleasedAnswers,
    SyntheticHistogram,
    read_queries,
    workloads,
)
from hushgram.mechanisms.pmw.workload import GRID
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.pipelines.config.models import Exact, JobConfig, Model, Name, QueriesConfig, refuse
from hushgram.pipelines.jobs.job import (
    Job,
    Line,
    LocalResources,
    Pipeline,
    heavy_domain,
    read_bytes,
    read_key_list,
    read_lines,
    write_bytes,
)

__all__ = ["JOB", "AnswerConfig", "AnswerDomain", "AnswerJob", "PmwConfig"]


class AnswerDomain(Model):
    """The cells that queries refer to: one of four kinds, all public."""

    keys: str | None = Field(default=None, description="a file with one key per line")
    sketch: str | None = Field(default=None, description="a released sketch: its heavy keys are the domain")
    buckets: int | None = Field(
        default=None, ge=1, le=1 << 20, description="hash all keys into this many buckets, such as 1024"
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


class PmwConfig(Model):
    """Parameters of multiplicative weights; thresholds follow from the noise, or with ``alpha`` from the theorem."""

    mode: Literal["online", "offline"] = Field(
        default="online",
        description="online answers queries in the order of the file; offline corrects the worst first",
    )
    rounds: int | None = Field(
        default=None, ge=1, le=4096, description="number of measurements in mode offline, such as 200"
    )
    stop: Exact | None = Field(default=None, description="error in counts at which mode offline stops early")
    max_updates: int | None = Field(
        default=None, ge=1, le=100_000, description="maximum number of updates in mode online, such as 400"
    )
    threshold: Exact | None = Field(
        default=None, description="error, in counts, above which the hypothesis is updated"
    )
    total: int | None = Field(
        default=None, ge=1, description="number of records in the domain, if it is public"
    )
    replay: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="steps over all measured answers after each update, such as 2",
    )
    eta: Exact | None = Field(
        default=None, description="learning rate of the plain update, where replay is 0"
    )
    alpha: Exact | None = Field(
        default=None, description="error as a share of the total, from which the theorem gives all parameters"
    )
    beta: Exact = Field(default=Fraction(1, 20), description="probability that alpha is exceeded")
    prior: str | None = Field(
        default=None,
        description="a released sketch to start from instead of the uniform histogram, at no cost",
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
    queries: QueriesConfig
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
        """Return the mechanism's parameters for so many cells and queries."""
        privacy, pmw = self.privacy, self.pmw
        common: dict[str, Any] = {"delta": privacy.delta, "max_contributions": privacy.contributions}
        if pmw.alpha is not None and pmw.total is not None:  # the config checks that both are there
            common |= {"epsilon": privacy.epsilon, "total": pmw.total, "queries": queries}
            return PmwParams.from_accuracy(pmw.alpha, cells=cells, beta=pmw.beta, **common)
        names = ("rounds", "stop", "max_updates", "threshold", "total", "replay", "eta")
        common |= {name: getattr(pmw, name) for name in names if getattr(pmw, name) is not None}
        if pmw.mode == "online":
            return PmwParams(privacy.epsilon, queries=queries, **common)
        check_size(queries, cells)
        return OfflineParams(privacy.epsilon, **{"rounds": min(200, queries), **common})


class AnswerJob(Job[AnswerConfig]):
    """Answer linear queries; domain, queries, parameters and prior do not depend on the records."""

    Config = AnswerConfig
    subject = "Answers and hypothesis together are"
    shape = "directory"

    def resolve(self) -> None:
        config = self.config
        self.cells, self.prior = _domain(config.domain)
        self.by_record = self.cells.numeric
        self.queries = tuple(_queries(config.queries))
        for query in self.queries:
            self.cells.row(query.fields, f"query {query.id}")  # unknown keys and wrong weights show here
        if config.pmw.prior is not None:
            from hushgram.sketch.reader import Sketch

            estimates = Sketch.open(config.pmw.prior).estimate(list(self.cells.labels), interval=None)
            self.prior = prior_weights(estimates.column("estimate").to_numpy())
        self.params = config.params(len(self.cells), len(self.queries))

    def events(self) -> list[Event]:
        """Return the stream, and the total where it is not public."""
        epsilon, delta = self.params.guarantee()
        details = {"mode": self.config.pmw.mode, "cells": str(len(self.cells))}
        version = 2 if self.config.pmw.mode == "online" else 1  # comparisons have one-sided noise
        events = [
            Event("pmw", epsilon - self.params.total_epsilon, delta, details, version, relation=self.unit)
        ]
        if self.params.total_epsilon:
            events.append(
                Event("laplace", self.params.total_epsilon, details={"of": "total"}, relation=self.unit)
            )
        return events

    def resolved(self) -> dict[str, Any]:
        return {
            "pmw": self.params.noise_text,
            "domain": digest(*self.cells.labels).hex(),
            "queries": digest(*(json.dumps(dict(q.fields)) for q in self.queries)).hex(),
            "prior": None if self.prior is None else digest(self.prior).hex(),
        }

    def build(self, pipeline: Pipeline, path: str, release_key: ReleaseKey, local: LocalResources) -> None:
        import apache_beam as beam

        from hushgram.transforms.count_domain import CountDomain
        from hushgram.transforms.release_domain import AnswerLinear

        answer = AnswerLinear(
            self.cells, self.queries, self.params, release_key=release_key, prior=self.prior, unit=self.unit
        )
        told = (self.queries, self.cells, self.params, self.name, self.guarantee())
        _ = (
            self.bounded_cells(pipeline, self.cells, release_key, local)
            | "CountDomain" >> CountDomain(self.cells)
            | "AnswerLinear" >> answer  # ReleasedAnswers
            | "WriteAnswers" >> beam.Map(_write, path, told)
        )

    def check_lines(self) -> Iterator[Line]:
        params, cells, queries = self.params, len(self.cells), len(self.queries)
        stated = params.describe(queries)["accuracy"]
        if isinstance(params, OfflineParams):
            most, comparing, compared, until = params.rounds, 1 / params.rate, "choices", "if it stops early"
        else:
            most, comparing, compared = params.max_updates, params.svt.noise.query, "comparisons"
            until = f"while updates last (threshold {params.svt.threshold / GRID:,.1f})"
        scales = (
            f"{compared} {float(comparing) / GRID:,.1f}, measured answers {float(params.scale) / GRID:,.1f}"
        )
        yield "queries", f"{queries:,} queries over {cells:,} cells, at most {most:,} updates"
        yield "start", "a released sketch" if self.prior is not None else "the uniform histogram"
        yield "noise", f"scales in counts: {scales}"
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
            "(see docs/answers.md)",
        )

    def _expected(self) -> str:
        """Compare online, offline and plain Laplace on synthetic counts."""
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
            f"worst error on synthetic counts of {found.records:,} records: online {found.online:,.0f}, offline "
            f"{found.offline:,.0f}, Laplace on each {found.laplace:,.0f}; best: {found.best}"
        )

    def closing_lines(self, path: str) -> Iterator[Line]:
        manifest = SyntheticHistogram.open(path).manifest
        told = ", ".join(f"{count:,} {words}" for words, count in manifest["answers"].items())
        parameters = manifest["parameters"]
        most = parameters.get("max_updates", parameters.get("rounds"))
        yield "answers", f"{told}; {manifest['updates']} of {most} updates"
        if manifest["answers"]["hypothesis alone"]:
            yield (
                "",
                "the maximum number of updates was reached: answers from 'hypothesis alone' have no error bound",
            )

    def released(self, path: str) -> pa.Table:
        return pa.Table.from_pylist(read_lines(f"{path}/{ANSWERS}")).drop_columns("row")

    def closing_table(self, path: str) -> pa.Table:
        return self.released(path)


def _domain(config: AnswerDomain) -> tuple[FiniteDomain, NDArray[np.int64] | None]:
    """Return the cells, and the prior that comes with them where they are a sketch's heavy keys."""
    if config.keys is not None:
        return KeyDomain.of(read_key_list(config.keys, "domain.keys")), None
    if config.buckets is not None:
        return BucketDomain(config.buckets), None
    if config.edges is not None:
        return RangeDomain(config.edges), None
    domain, values = heavy_domain(str(config.sketch), "domain.sketch")
    return domain, prior_weights(values)


def _queries(config: QueriesConfig) -> list[LinearQuery]:
    if config.path is not None:
        return read_queries(read_bytes(config.path, "queries.path").splitlines(), config.path)
    # YAML numbers come as exact decimals
    return read_queries((json.dumps(fields, default=float) for fields in config.queries or ()), "queries")


def _write(
    released: ReleasedAnswers,
    path: str,
    told: tuple[tuple[LinearQuery, ...], FiniteDomain, PmwParams | OfflineParams, str, Guarantee],
) -> str:
    from apache_beam.io.filesystems import FileSystems

    files = released.files(*told)
    for file in [*(f for f in files if f != MANIFEST), MANIFEST]:
        write_bytes(FileSystems.join(path, file), files[file])
    return path


JOB = AnswerJob
