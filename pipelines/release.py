"""The release job: an input, the stages, a runner.

    plan = plan_records(["data/*.parquet"], Source(ids=("user_id", "url")))
    result = run_release(params, plan, user="user_id", key="url", path="out/urls.sketch")
    result.sketch().estimate(["https://example.org/"])

The sketch is the one of ``hushgram.release`` on the same records and release key, byte for byte. The exact
figures of the result are for the operator's terminal alone: they are not differentially private.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from hushgram.errors import InputError
from hushgram.inputs import InputPlan, Limits
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.progress import read_counters, run_pipeline
from hushgram.pipelines.runners import local_resources, new_pipeline, pipeline_options
from hushgram.sketch.reader import Sketch
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.transforms.read_records import ReadRecords, read_records
from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram
from hushgram.transforms.shuffle.batching import LocalResources
from hushgram.transforms.shuffle.sharding import shards_for
from hushgram.transforms.write_sketch import discard_work

__all__ = ["ReleaseResult", "build_release", "run_release"]


@dataclass(frozen=True)
class ReleaseResult:
    """A finished release: where it is, how long it took, and what the job counted.

    ``exact`` is for the operator alone: rows read, records set aside ("bad", and each reason), records kept
    after bounding, distinct keys. It is empty on a runner that does not tell.
    """

    path: str
    seconds: float
    exact: dict[str, int]

    def sketch(self) -> Sketch:
        """The sketch, opened and checked."""
        return Sketch.open(self.path)


def run_release(
    params: ReleaseParams,
    source: InputPlan | beam.PTransform,
    *,
    options: PipelineOptions | None = None,
    bad_records: str | None = None,
    limits: Limits | None = None,
    quiet: bool = True,
    **release_arguments: Any,
) -> ReleaseResult:
    """Run one release and wait for it.

    ``source`` is the plan of an input (`plan_records`), or a PTransform that gives records; ``release_arguments`` are
    those of `build_release`. Input beyond ``limits`` is refused before anything is published. A user's mistake raises a
    `HushgramError`, whatever process met it, and nothing is left behind.
    """
    options = pipeline_options() if options is None else options
    size = source.bytes if isinstance(source, InputPlan) else None
    started = time.monotonic()
    with local_resources(options) as local:
        release = build_release(params, source, local=local, **release_arguments)
        name = release_arguments.get("name")
        try:
            pipeline = new_pipeline(options)
            if isinstance(source, InputPlan):
                reader = ReadRecords(source, limits)
                records, release.after = read_records(pipeline, reader, bad_records), reader.checked
            else:
                records = pipeline | "Records" >> source
            _ = records | "Release" >> release
            result = run_pipeline(pipeline, options, title=name or "release", total_bytes=size, quiet=quiet)
        finally:
            discard_work(release.target)
    return ReleaseResult(release.target.path, time.monotonic() - started, read_counters(result))


def build_release(
    params: ReleaseParams,
    source: InputPlan | beam.PTransform,
    *,
    key: str,
    path: str | os.PathLike[str],
    user: str | None = None,
    value: str | None = None,
    public_keys: Any = None,
    name: str = "",
    release_key: ReleaseKey | None = None,
    shards: int | None = None,
    local: LocalResources | None = None,
) -> ReleaseSparseHistogram:
    """The transform of a release, with the shuffle's shards chosen from the size of the input.

    ``public_keys`` is a list that is known without looking at the data: then all of its keys are released, and no
    others. ``path`` must be free, or an empty directory. ``shards`` groups the shuffle and has no effect on the result.
    """
    size = None
    if isinstance(source, InputPlan):
        size = source.bytes
        for column in (user, key, value):
            if column is not None and column not in source.schema.names:
                read = ", ".join(source.schema.names)
                raise InputError(f"column {column!r} is not among those that are read: {read}")
    chosen = shards_for(size, shards)
    made = isinstance(source, InputPlan) and key in source.source.recipes
    return ReleaseSparseHistogram(
        params,
        user=user,
        key=key,
        value=value,
        path=path,
        public_keys=public_keys,
        name=name,
        recipe=key if made else "",
        release_key=release_key,
        shards=chosen,
        local=local,
    )
