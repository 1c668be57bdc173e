"""What a job may use where all its workers share one machine, and a run that uses it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.progress import run_pipeline
from hushgram.pipelines.runners import is_local, new_pipeline, pipeline_options, worker_count
from hushgram.pipelines.scratch import scratch_directory
from hushgram.transforms.shuffle.batching import LocalResources

__all__ = ["local_resources", "run_stages"]


@contextmanager
def local_resources(options: PipelineOptions) -> Iterator[LocalResources]:
    """A private directory for the shuffle, and a second thread if one process does it all; else nothing."""
    if not is_local(options):
        yield LocalResources()
        return
    alone = worker_count(options) == 1
    with scratch_directory() as spill:
        yield LocalResources(threads=min(2, os.cpu_count() or 1) if alone else 1, spill=spill)


def run_stages(
    job: Any,
    build: Callable[[Any, Any, str, ReleaseKey, LocalResources], None],
    *,
    path: str | Path,
    release_key: ReleaseKey,
    options: PipelineOptions | None = None,
    quiet: bool = True,
) -> Any:
    """Builds the stages of a job, runs them and waits; returns Beam's result.

    ``build(pipeline, job, path, secret, local)`` adds the stages from the job's input to the file at ``path``.
    """
    options = pipeline_options(workers=job.config.workers) if options is None else options
    with local_resources(options) as local:
        pipeline = new_pipeline(options)
        build(pipeline, job, str(path), release_key, local)
        return run_pipeline(
            pipeline, options, title=job.config.job_name, total_bytes=job.source.bytes, quiet=quiet
        )
