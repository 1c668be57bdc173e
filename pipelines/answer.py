"""The jobs of ``hushgram answer`` and ``hushgram top``: bounded counts of a finite domain, then a mechanism.

    job = resolve_answer(load_config("configs/answer.yaml", [], AnswerConfig))   # checks everything, reads
    no records job.params.guarantee()                                                       # (ε, δ), exact
    run_answer(job, path="out/answers", secret=key)                              # one pass, one directory

    read ─► bound users ─► count cells ─┬─► AnswerLinear ─► answers, hypothesis, manifest
                                        └─► MostFrequent ─► the keys chosen

For one release key and one input the output has the same bytes on every runner.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from numpy.typing import NDArray

from hushgram.accounting import Event
from hushgram.domains import BucketDomain, FiniteDomain, KeyDomain, RangeDomain
from hushgram.errors import InputError
from hushgram.inputs import InputPlan
from hushgram.inputs.key_lists import read_text_keys
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.pipelines.answer_config import AnswerConfig, AnswerDomain, QueriesFile
from hushgram.pipelines.config import JobConfig
from hushgram.pipelines.progress import run_pipeline
from hushgram.pipelines.runners import new_pipeline, pipeline_options
from hushgram.pipelines.source import plan_config
from hushgram.pmw.mechanism import PmwParams, prior_weights
from hushgram.pmw.synthetic import MANIFEST, LinearQuery, Outcome, read_queries
from hushgram.sketch.reader import Sketch
from hushgram.transforms.answer_linear_queries import AnswerLinear
from hushgram.transforms.bound_contributions import BoundContributions, CountRecords
from hushgram.transforms.count_domain import CountDomain, KeepDomain
from hushgram.transforms.files import open_file
from hushgram.transforms.read_records import read_records
from hushgram.transforms.shuffle.sharding import shards_for

__all__ = [
    "AnswerJob",
    "resolve_answer",
    "run_answer",
]


@dataclass(frozen=True)
class AnswerJob:
    """A config made exact: domain, queries, parameters and prior. Nothing of it depends on the records."""

    config: AnswerConfig
    cells: FiniteDomain
    queries: tuple[LinearQuery, ...]
    params: PmwParams
    prior: NDArray[np.int64] | None

    @property
    def unit(self) -> str:
        """Who is protected."""
        return "record" if self.config.input.user is None else "user"

    @property
    def events(self) -> list[Event]:
        """What the ledger charges: the stream, and the total where it is not public."""
        epsilon, delta = self.params.guarantee()
        details = {"max_updates": str(self.params.max_updates), "cells": str(len(self.cells))}
        events = [Event("pmw", epsilon - self.params.total_epsilon, delta, details=details)]
        if self.params.total_epsilon:
            events.append(Event("laplace", self.params.total_epsilon, details={"of": "total"}))
        return events

    @property
    def parameters(self) -> dict[str, Any]:
        """All public choices that can change the output, for the ledger."""
        config = self.config
        return {
            "privacy": config.privacy.model_dump(),
            "input": {"key": config.input.key, "user": config.input.user},
            "pmw": {**self.params.svt.describe(), "replay": self.params.replay, "total": self.params.total},
            "domain": digest(*self.cells.labels).hex(),
            "queries": digest(*(json.dumps(dict(q.fields)) for q in self.queries)).hex(),
            "prior": None if self.prior is None else digest(self.prior).hex(),
        }


def resolve_answer(config: AnswerConfig) -> AnswerJob:
    """Domain, queries and parameters; every mistake is one line, before any budget is spent."""
    cells, prior = _domain(config.domain)
    queries = tuple(_queries(config.queries))
    for query in queries:
        cells.row(query.fields, f"query {query.id}")  # unknown keys and wrong weights show here
    if config.pmw.prior is not None:
        estimates = Sketch.open(config.pmw.prior).estimate(list(cells.labels), interval=None)
        prior = prior_weights(estimates.column("estimate").to_numpy())
    return AnswerJob(config, cells, queries, _params(config, len(cells), len(queries)), prior)


def _read(path: str) -> bytes:
    with open_file(path) as file:
        content: bytes = file.read()
    return content


def _domain(config: AnswerDomain) -> tuple[FiniteDomain, NDArray[np.int64] | None]:
    """The cells, and the prior that comes with them where they are a sketch's heavy keys."""
    if config.keys is not None:
        return KeyDomain.of(read_text_keys(config.keys, "domain.keys", open_file)), None
    if config.buckets is not None:
        return BucketDomain(config.buckets), None
    if config.edges is not None:
        return RangeDomain(config.edges), None
    sketch = Sketch.open(str(config.sketch))
    heavy = sketch.heavy()
    if not heavy.num_rows:
        raise InputError(f"domain.sketch: {config.sketch} has no heavy keys")
    prior = prior_weights(heavy.column("value").to_numpy())
    if "key" in heavy.column_names:
        return KeyDomain.of([str(key) for key in heavy.column("key").to_pylist()]), prior
    prints = heavy.column("fingerprint").to_numpy()
    return KeyDomain.of_heavy(prints, sketch.plan.domain_bits or 64), prior


def _queries(config: QueriesFile) -> list[LinearQuery]:
    if config.path is not None:
        return read_queries(_read(config.path).splitlines(), config.path)
    return read_queries(
        (json.dumps(fields, default=_json_number) for fields in config.queries or ()), "queries"
    )


def _json_number(value: Any) -> float:
    """YAML numbers come as exact decimals."""
    return float(value)


def _params(config: AnswerConfig, cells: int, queries: int) -> PmwParams:
    privacy, pmw = config.privacy, config.pmw
    if pmw.alpha is not None and pmw.total is not None:
        return PmwParams.from_accuracy(
            pmw.alpha,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            cells=cells,
            total=pmw.total,
            queries=queries,
            beta=pmw.beta,
            max_contributions=privacy.contributions,
        )
    given = {
        name: getattr(pmw, name)
        for name in ("max_updates", "threshold", "total", "replay", "eta")
        if getattr(pmw, name) is not None
    }
    return PmwParams(
        privacy.epsilon,
        delta=privacy.delta,
        max_contributions=privacy.contributions,
        queries=queries,
        **given,
    )


def run_answer(
    job: AnswerJob,
    *,
    path: str | Path,
    release_key: ReleaseKey,
    options: PipelineOptions | None = None,
    quiet: bool = True,
) -> Any:
    """Runs the job and writes answers, hypothesis and manifest under ``path``; returns Beam's result."""
    options = pipeline_options(workers=job.config.workers) if options is None else options
    source = plan_config(job.config.input)
    pipeline = new_pipeline(options)
    _ = (
        _bounded(pipeline, job.config, source, release_key, job.cells)
        | "CountDomain" >> CountDomain(job.cells)
        | "AnswerLinear"
        >> AnswerLinear(job.cells, job.queries, job.params, release_key=release_key, prior=job.prior)
        | "WriteAnswers"
        >> beam.Map(_write, str(path), job.queries, job.cells, job.params, job.config.answer, job.unit)
    )
    return run_pipeline(pipeline, options, title=job.config.job_name, total_bytes=source.bytes, quiet=quiet)


def _bounded(
    pipeline: beam.Pipeline,
    config: JobConfig,
    source: InputPlan,
    release_key: ReleaseKey,
    cells: FiniteDomain,
) -> Any:
    """Files → parts of the bounded histogram of the domain's keys."""
    records = read_records(pipeline, source, config.input.bad_records)
    records = records | "KeepDomain" >> KeepDomain(cells, config.input.key)
    if config.input.user is None:
        return records | "CountRecords" >> CountRecords(config.input.key, texts=cells.texts)
    return records | "BoundContributions" >> BoundContributions(
        config.input.user,
        config.input.key,
        release_key,
        max_contributions=config.privacy.contributions,
        max_per_key=config.privacy.max_per_key,
        texts=cells.texts,
        shards=shards_for(source.bytes, config.shards).users,
    )


def _write(
    outcome: Outcome,
    path: str,
    queries: Sequence[LinearQuery],
    cells: FiniteDomain,
    params: PmwParams,
    name: str,
    unit: str,
) -> str:
    files = outcome.files(queries, cells, params, name, unit)
    for file in [*(f for f in files if f != MANIFEST), MANIFEST]:
        with FileSystems.create(FileSystems.join(path, file), mime_type="application/octet-stream") as sink:
            sink.write(files[file])
    return path
