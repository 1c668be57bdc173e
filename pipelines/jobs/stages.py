"""Stages that several jobs begin with. Imported when a pipeline is built: this module imports Beam."""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from hushgram.domains import FiniteDomain
from hushgram.exact.contributions import Bounds
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.jobs.job import Job
from hushgram.transforms.bound_contributions import BoundContributions, CountRecords
from hushgram.transforms.count_domain import KeepDomain, KeepPartition
from hushgram.transforms.read_records import ReadRecords, read_records
from hushgram.transforms.shuffle.batching import LocalResources
from hushgram.transforms.shuffle.sharding import shards_for

__all__ = ["bounded_cells", "bounding", "records"]


def records(pipeline: beam.Pipeline, job: Job[Any]) -> Any:
    """The records of a job's input (of its part of the users, where it has one), as Arrow batches.

    Those set aside go where the config says.
    """
    reader = ReadRecords(job.source, job.config.input.limits)
    read = read_records(pipeline, reader, job.config.input.bad_records)
    part, user = job.config.user_part, job.config.input.user
    return read if part is None or user is None else read | "OfPart" >> KeepPartition(part, user)


def bounding(
    job: Job[Any],
    column: str,
    release_key: ReleaseKey,
    local: LocalResources,
    *,
    texts: bool,
    max_per_key: int | None = None,
) -> beam.PTransform:
    """Batches → parts of the bounded histogram of `column`: by user, or where there is none, of all records."""
    config = job.config
    if config.input.user is None:
        return CountRecords(column, texts=texts, local=local)
    return BoundContributions(
        config.input.user,
        column,
        release_key,
        Bounds(config.privacy.contributions, max_per_key or config.privacy.max_per_key),
        texts=texts,
        shards=shards_for(job.source.bytes, config.shards).users,
        local=local,
    )


def bounded_cells(
    pipeline: beam.Pipeline,
    job: Job[Any],
    cells: FiniteDomain,
    release_key: ReleaseKey,
    local: LocalResources,
) -> Any:
    """Files → parts of the bounded histogram of a finite domain; records outside of it are left out first."""
    key = job.config.input.key
    return (
        records(pipeline, job)
        | "KeepDomain" >> KeepDomain(cells, key)
        | "Bound" >> bounding(job, key, release_key, local, texts=cells.texts)
    )
