"""What a job may use where all its workers share one machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions

from hushgram.pipelines.runners import is_local
from hushgram.pipelines.scratch import scratch_directory
from hushgram.transforms.batching import Local

__all__ = ["local_means"]


@contextmanager
def local_means(options: PipelineOptions) -> Iterator[Local]:
    """A private directory for the shuffle, and a second thread if one process does it all; else nothing."""
    if not is_local(options):
        yield Local()
        return
    alone = options.view_as(DirectOptions).direct_num_workers == 1
    with scratch_directory() as spill:
        yield Local(threads=min(2, os.cpu_count() or 1) if alone else 1, spill=spill)
