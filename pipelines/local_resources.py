"""What a job may use where all its workers share one machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from apache_beam.options.pipeline_options import PipelineOptions

from hushgram.pipelines.run_directory import run_directory
from hushgram.pipelines.runners import is_local, worker_count
from hushgram.transforms.shuffle.batching import LocalResources

__all__ = ["local_resources"]


@contextmanager
def local_resources(options: PipelineOptions) -> Iterator[LocalResources]:
    """A private directory for the shuffle, and a second thread if one process does it all; else nothing."""
    with run_directory() as folder:
        if not is_local(options):
            yield LocalResources()
            return
        alone = worker_count(options) == 1
        yield LocalResources(threads=min(2, os.cpu_count() or 1) if alone else 1, spill=str(folder))
