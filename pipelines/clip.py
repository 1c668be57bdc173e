"""The clip job: a clipping bound for a numeric column, then sum, count and average.

job = resolve_clip(load_config("configs/ages.yaml", [], ClipConfig))      # checks everything, reads no
data run_clip(job, path="out/ages.json", secret=key)

read ─► keep numbers ─► bound by (user, value) ─► count by cell of the grid ─► ReleaseClipped ─► ages.json
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from hushgram.accounting import Event
from hushgram.clipping import ClipParams, Clipped
from hushgram.errors import InputError
from hushgram.inputs import InputPlan, Source
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import show
from hushgram.pipelines.clip_config import ClipConfig
from hushgram.pipelines.local_resources import run_stages
from hushgram.pipelines.source import source_of
from hushgram.svt.exact_answers import queryable
from hushgram.transforms.answer_queries import RECORD, PackRecords
from hushgram.transforms.bound_contributions import BoundContributions, CountRecords
from hushgram.transforms.read_records import plan_records, read_records
from hushgram.transforms.release_clipped import KeepNumbers, ReleaseClipped
from hushgram.transforms.shuffle.batching import LocalResources
from hushgram.transforms.shuffle.sharding import shards_for

__all__ = ["ClipJob", "build_clip", "resolve_clip", "run_clip"]

VERSION = 1
ANYWHERE = LocalResources()


@dataclass(frozen=True)
class ClipJob:
    """A config made exact."""

    config: ClipConfig
    params: ClipParams
    source: InputPlan

    @property
    def schema(self) -> pa.Schema:
        """The one column that is packed."""
        column = self.config.input.column
        return pa.schema([(column, queryable(column, self.source.schema.field(column).type))])

    @property
    def events(self) -> list[Event]:
        """What the ledger charges: the search, the sum and the count."""
        bound, total, count = self.params.epsilons
        max_contributions = {"sensitivity": str(self.params.max_contributions)}
        return [
            Event("svt", bound, details=max_contributions),
            Event("laplace", total),
            Event("laplace", count),
        ]

    @property
    def parameters(self) -> dict[str, Any]:
        """All public choices that can change the output, for the ledger."""
        return {
            "clip": self.params.describe(),
            "input": self.config.input.model_dump(exclude={"path", "bad_records"}),
        }

    def header(self) -> dict[str, Any]:
        """The public description that the output holds."""
        unit = "record" if self.config.input.user is None else "user"
        max_contributions = self.params.max_contributions
        bound = f"; each user counts with at most {max_contributions} records" if unit == "user" else ""
        return {
            "hushgram": "clip",
            "version": VERSION,
            "name": self.config.job_name,
            "column": self.config.input.column,
            "guarantee": {
                "epsilon": show(self.params.epsilon),
                "delta": "0",
                "unit": unit,
                "words": f"Bound, sum, count and average together are {show(self.params.epsilon)}-"
                f"differentially private for one {unit} added or removed{bound}.",
            },
            "parameters": self.params.describe(),
        }


def resolve_clip(config: ClipConfig) -> ClipJob:
    """Parameters and the input's column; every mistake is one line."""
    column, user = config.input.column, config.input.user
    described = source_of(config.input)
    source = plan_records(
        config.input.path,
        Source(**{**vars(described), "ids": () if user is None else (user,), "columns": (column,)}),
    )
    kind = source.schema.field(column).type
    whole = pa.types.is_integer(kind)
    if not (whole or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise InputError(f"column {column!r} is {kind}; a column to clip must hold numbers")
    return ClipJob(config, _params(config, Fraction(1) if whole else Fraction(1, 100)), source)


def _params(config: ClipConfig, unit: Fraction) -> ClipParams:
    grid, split = config.grid, config.privacy.split
    shares = {} if split is None else {"split": (split.bound, split.sum, split.count)}
    return ClipParams(
        epsilon=config.privacy.epsilon,
        max_contributions=config.privacy.contributions,
        grid=grid.kind,
        start=grid.start,
        stop=grid.stop,
        ratio=grid.ratio,
        step=grid.step,
        lower=grid.lower,
        unit=unit if grid.unit is None else grid.unit,
        threshold=grid.threshold,
        **shares,
    )


def run_clip(
    job: ClipJob,
    *,
    path: str | Path,
    release_key: ReleaseKey,
    options: PipelineOptions | None = None,
    quiet: bool = True,
) -> Any:
    """Runs the job and writes its result to ``path``; returns Beam's result."""
    return run_stages(job, build_clip, path=path, release_key=release_key, options=options, quiet=quiet)


def build_clip(
    pipeline: beam.Pipeline,
    job: ClipJob,
    path: str,
    release_key: ReleaseKey,
    local: LocalResources = ANYWHERE,
) -> None:
    """The job's stages, from the files to the result."""
    config = job.config
    records = read_records(pipeline, job.source, config.input.bad_records)
    _ = (
        records
        | "KeepNumbers" >> KeepNumbers(config.input.column)
        | "PackRecords" >> PackRecords(job.schema, config.input.user)
        | "Bound" >> _bounding(job, release_key, local)  # Histogram of packed values
        | "ReleaseClipped" >> ReleaseClipped(job.params, job.schema, release_key)  # Clipped
        | "Write" >> beam.Map(_write, path, job.header())
    )


def _bounding(job: ClipJob, release_key: ReleaseKey, local: LocalResources) -> beam.PTransform:
    user, max_contributions = job.config.input.user, job.params.max_contributions
    if user is None:
        return CountRecords(RECORD, texts=True, local=local)
    shards = shards_for(job.source.bytes, job.config.shards).users
    # equal values are as good as others: a user's records count up to C, however often one value occurs
    return BoundContributions(
        user,
        RECORD,
        release_key,
        max_contributions=max_contributions,
        max_per_key=max_contributions,
        texts=True,
        shards=shards,
        local=local,
    )


def _write(clipped: Clipped, path: str, header: dict[str, Any]) -> str:
    with FileSystems.create(path, mime_type="application/json") as file:
        text = json.dumps({**header, "result": clipped.as_json()}, indent=2, ensure_ascii=False)
        file.write(text.encode() + b"\n")
    return path
