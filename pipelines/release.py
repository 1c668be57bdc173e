"""The release job: an input, the stages, a runner.

    plan = plan_records(["data/*.parquet"], Source(ids=("user_id", "url")))
    result = run_release(params, plan, user="user_id", key="url", path="out/urls.sketch")
    result.sketch().estimate(["https://example.org/"])

The sketch is the one of ``hushgram.release`` on the same records and release key, byte for byte. The exact figures of the
result are for the operator's terminal alone: they are not differentially private.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from hushgram.entropy import ReleaseKey
from hushgram.errors import HushgramError, InputError, ParameterError
from hushgram.inputs import InputPlan
from hushgram.params import ReleaseParams
from hushgram.pipelines.failures import as_hushgram_error
from hushgram.pipelines.runners import new_pipeline, pipeline_options
from hushgram.sketch.reader import Sketch
from hushgram.transforms.records import ReadRecords, WriteBadRecords
from hushgram.transforms.release import ReleaseSparseHistogram
from hushgram.transforms.sharding import shards_for
from hushgram.transforms.sketch_sink import discard_work

__all__ = ["KEY_FILE", "Exact", "ReleaseResult", "build_release", "key_from_environment", "run_release"]

#: Environment variable with the path of a file that holds a release key: for tests and recovery alone.
KEY_FILE = "HUSHGRAM_RELEASE_KEY_FILE"


@dataclass(frozen=True)
class Exact:
    """What the job counted. Exact, and so not for publication; None where the runner does not tell."""

    rows: int | None = None
    bad: int | None = None
    records: int | None = None
    keys: int | None = None


@dataclass(frozen=True)
class ReleaseResult:
    """A finished release: where it is, how long it took, and the operator's exact figures."""

    path: str
    seconds: float
    exact: Exact

    def sketch(self) -> Sketch:
        """The sketch, opened and checked."""
        return Sketch.open(self.path)


def run_release(
    params: ReleaseParams,
    source: InputPlan | beam.PTransform,
    *,
    key: str,
    path: str | os.PathLike[str],
    user: str | None = None,
    name: str = "",
    secret: ReleaseKey | None = None,
    options: PipelineOptions | None = None,
    shards: int | None = None,
    bad_records: str | None = None,
    submitted: Callable[[Any], None] | None = None,
) -> ReleaseResult:
    """Run one release and wait for it.

    ``source`` is the plan of an input (`plan_records`), or a PTransform that gives records. ``path`` must be free, or an
    empty directory. ``shards`` groups the shuffle and has no effect on the result. ``submitted`` is called with Beam's
    result once the job is on its way. A user's mistake raises a `HushgramError`, whatever process met it.
    """
    options = pipeline_options() if options is None else options
    release = build_release(params, source, key=key, path=path, user=user, name=name, secret=secret, shards=shards)
    pipeline = new_pipeline(options)
    started = time.monotonic()
    try:
        _records(pipeline, source, bad_records) | "Release" >> release
        result = pipeline.run()
        if submitted is not None:
            submitted(result)
        state = result.wait_until_finish()
        if state not in (PipelineState.DONE, None):
            raise HushgramError(f"the job ended in state {state}; see the runner's log")
    except Exception as problem:
        known = as_hushgram_error(problem)
        if known is None or known is problem:
            raise
        raise known from None
    finally:
        discard_work(release.target)
    return ReleaseResult(release.target.path, time.monotonic() - started, _exact(result, source))


def build_release(
    params: ReleaseParams,
    source: InputPlan | beam.PTransform,
    *,
    key: str,
    path: str | os.PathLike[str],
    user: str | None = None,
    name: str = "",
    secret: ReleaseKey | None = None,
    shards: int | None = None,
) -> ReleaseSparseHistogram:
    """The transform of a release, with the shuffle's shards chosen from the size of the input."""
    size = source.bytes if isinstance(source, InputPlan) else None
    if isinstance(source, InputPlan):
        for column in (user, key):
            if column is not None and column not in source.schema.names:
                raise InputError(f"column {column!r} is not read; the columns are {', '.join(source.schema.names)}")
    return ReleaseSparseHistogram(
        params, user=user, key=key, path=path, name=name, secret=secret, shards=shards_for(size, shards)
    )


def key_from_environment() -> ReleaseKey | None:
    """The release key of the file that `KEY_FILE` names, if it names one."""
    path = os.environ.get(KEY_FILE)
    if not path:
        return None
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise ParameterError(f"{KEY_FILE}: {path} cannot be read: {error.strerror}") from None
    return ReleaseKey.from_hex(text)


def _records(pipeline: beam.Pipeline, source: InputPlan | beam.PTransform, bad_records: str | None) -> Any:
    if not isinstance(source, InputPlan):
        return pipeline | "Records" >> source
    read = pipeline | "Read" >> ReadRecords(source)
    if not source.source.keep_bad:
        return read
    if bad_records is not None:
        read.bad | "SetAside" >> WriteBadRecords(bad_records)
    return read.records


def _exact(result: Any, source: Any) -> Exact:
    """The counters, as far as the runner tells them."""
    try:
        found = result.metrics().query(MetricsFilter().with_namespace("hushgram"))["counters"]
    except Exception:  # a runner without metrics is no reason to fail after the release is there
        return Exact()
    counts: dict[str, int] = {}
    for counter in found:
        name = counter.key.metric.name
        counts[name] = counts.get(name, 0) + int(counter.committed if counter.committed is not None else counter.attempted)
    rows = counts.get("rows", 0 if isinstance(source, InputPlan) else None)
    return Exact(rows, counts.get("bad", 0), counts.get("records", 0), counts.get("keys"))
