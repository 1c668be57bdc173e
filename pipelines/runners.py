"""Which runner: options after ``--`` go to Beam unchanged; without a runner the job stays in this process.

Beam's DirectRunner first tries Prism, a Go program that it downloads, and falls back to the Python runner
when that fails. A private release should not depend on a download, nor on which of the two ran:
``DirectRunner`` and no runner at all mean Beam's in-process FnApiRunner here. Prism is asked for by its name,
``--runner=PrismRunner``. Several workers are processes of our own (`worker_processes`): Beam's ways to have
several open ports, so ``direct_running_mode`` has no effect.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DirectOptions,
    PipelineOptions,
    StandardOptions,
    WorkerOptions,
)
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.portable_runner import JobServiceHandle

from hushgram.errors import ParameterError
from hushgram.pipelines.engine_options import check_engine
from hushgram.pipelines.run_directory import active_directory
from hushgram.pipelines.worker_processes import WorkerProcesses

__all__ = ["LOCAL", "is_local", "new_pipeline", "pipeline_options", "worker_count"]

LOCAL = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
_LOCAL_NAMES = {"", "direct", "directrunner", "fnapirunner", "switchingdirectrunner", LOCAL.lower()}


def new_pipeline(options: PipelineOptions) -> beam.Pipeline:
    """A pipeline on the runner that `options` (see `pipeline_options`) name."""
    pipeline = _pipeline(options)
    if (folder := active_directory()) is not None:
        os.rmdir(pipeline.local_tempdir)
        pipeline.local_tempdir = tempfile.mkdtemp(prefix="beam-", dir=folder)
    return pipeline


def _pipeline(options: PipelineOptions) -> beam.Pipeline:
    if not is_local(options):
        return beam.Pipeline(options=options)
    direct = options.view_as(DirectOptions)
    processes = None
    if worker_count(options) > 1:
        processes = WorkerProcesses(JobServiceHandle.encode_pipeline_options(options.get_all_options()))
    # Beam's modes with several workers open ports; its processes are ours whatever mode was asked for.
    direct.direct_running_mode = "in_memory"
    return beam.Pipeline(fn_runner.FnApiRunner(provision_info=processes), options=options)


def pipeline_options(arguments: Sequence[str] = (), workers: int = 1) -> PipelineOptions:
    """Options of a job: the user's Beam arguments, and the local runner where they name none.

    `workers` above 1 runs the local job in that many processes; the result is the same, byte for byte.
    """
    unknown = [text for text in arguments if not text.startswith("-")]
    if arguments and not arguments[0].startswith("-"):
        raise ParameterError(
            f"after --, expected Beam options such as --runner=FlinkRunner, got {unknown[0]!r}"
        )
    options = _parsed(list(arguments))
    if not is_local(options):
        check_engine(options)
        return options
    options.view_as(StandardOptions).runner = LOCAL
    direct = options.view_as(DirectOptions)
    given = " ".join(arguments)
    if workers > 1 and "direct_num_workers" not in given:
        direct.direct_num_workers = workers
    if direct.direct_num_workers < 0:
        raise ParameterError(
            f"direct_num_workers must not be negative, got {direct.direct_num_workers}; name a number of processes"
        )
    if "sdk_harness_log_level" not in given:
        options.view_as(WorkerOptions).default_sdk_harness_log_level = "CRITICAL"
    return options


def _parsed(arguments: list[str]) -> PipelineOptions:
    options, said = PipelineOptions(arguments), io.StringIO()
    try:
        with contextlib.redirect_stderr(said):  # argparse prints how to use it, and ends the program
            options.get_all_options()
    except SystemExit:
        reason = said.getvalue().strip().rpartition("error: ")[2] or " ".join(arguments)
        raise ParameterError(f"after --, Beam does not understand its options: {reason}") from None
    return options


def worker_count(options: PipelineOptions) -> int:
    """Processes of a local job; Beam's 0 means one for each processor."""
    return options.view_as(DirectOptions).direct_num_workers or os.cpu_count() or 1


def is_local(options: Any) -> bool:
    """Whether the job runs on this machine, in this process or its children."""
    return (options.view_as(StandardOptions).runner or "").lower() in _LOCAL_NAMES
