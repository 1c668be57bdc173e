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
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DirectOptions,
    FlinkRunnerOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    PrismRunnerOptions,
    SparkRunnerOptions,
    StandardOptions,
    WorkerOptions,
)
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.runners.portability.flink_runner import MAGIC_HOST_NAMES, FlinkRunner
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.portable_runner import JobServiceHandle, PortableRunner
from apache_beam.runners.portability.prism_runner import PrismRunner
from apache_beam.runners.portability.spark_runner import LOCAL_MASTER_PATTERN, SparkRunner
from apache_beam.runners.runner import create_runner

from hushgram.errors import ParameterError
from hushgram.pipelines.run_directory import active_directory, run_directory
from hushgram.pipelines.worker_processes import WorkerProcesses
from hushgram.transforms.shuffle.batching import LocalResources

__all__ = [
    "LOCAL",
    "check_engine",
    "is_local",
    "local_resources",
    "new_pipeline",
    "pipeline_options",
    "worker_count",
]


# Options for engines, checked before anything is charged: is the runner there, are its parts, and who could listen in.
#
# What cannot work is refused here in one line, as the ledger is not asked yet. What would let others in is refused or
# said: Beam's LOOPBACK workers run any code that anybody on the network sends them, and Prism serves every interface.

_log = logging.getLogger(__name__)


def check_engine(options: PipelineOptions) -> None:
    """Refuses what the engine named in `options` could not run, or could not run safely."""
    name = options.view_as(StandardOptions).runner
    try:
        runner = create_runner(name)
    except (ImportError, AttributeError) as problem:
        raise ParameterError(f"after --, runner {name} cannot be used here: {problem}") from None
    except ValueError:
        raise ParameterError(
            f"after --, there is no runner {name!r}; use FlinkRunner, DataflowRunner or PrismRunner, or none of them"
            " for this machine"
        ) from None
    if isinstance(runner, PortableRunner):
        _refuse_loopback(runner, options)
        _find_parts(runner, options)
    if problems := PipelineOptionsValidator(options, runner).validate():
        told = "; ".join(" ".join(str(problem).split()) for problem in problems)
        raise ParameterError(f"after --, Beam refuses its options: {told}")
    if isinstance(runner, PrismRunner):
        _log.warning(
            "warning: Prism listens on every network interface and asks nobody for a password: whoever reaches this"
            " machine can read the records and the release key; use it for made-up data, or behind a firewall"
        )


def _refuse_loopback(runner: Any, options: PipelineOptions) -> None:
    portable = options.view_as(PortableOptions)
    default = (
        isinstance(runner, PrismRunner)
        or (
            isinstance(runner, FlinkRunner)
            and options.view_as(FlinkRunnerOptions).flink_master in MAGIC_HOST_NAMES
        )
        or (
            isinstance(runner, SparkRunner)
            and re.match(LOCAL_MASTER_PATTERN, options.view_as(SparkRunnerOptions).spark_master_url)
        )
    )
    if portable.environment_type == "LOOPBACK" or (default and not portable.environment_type):
        raise ParameterError(
            "after --, LOOPBACK workers (Beam's default here) would run code from anybody on the network; start"
            " `python -m hushgram.pipelines.worker_pool --port=50000` and add --environment_type=EXTERNAL"
            " --environment_config=localhost:50000"
        )


def _find_parts(runner: Any, options: PipelineOptions) -> None:
    """Programs and jars that Beam would start: there, or named as what is missing."""
    if options.view_as(PortableOptions).job_endpoint:
        return  # a job server that runs already
    flink, spark = options.view_as(FlinkRunnerOptions), options.view_as(SparkRunnerOptions)
    files = {
        "flink_job_server_jar": flink.flink_job_server_jar if isinstance(runner, FlinkRunner) else None,
        "spark_job_server_jar": spark.spark_job_server_jar if isinstance(runner, SparkRunner) else None,
        "prism_location": (
            options.view_as(PrismRunnerOptions).prism_location if isinstance(runner, PrismRunner) else None
        ),
    }
    for option, path in files.items():
        if path and "://" not in path and not os.path.isfile(path):
            raise ParameterError(f"after --, --{option}={path}: there is no such file")
    java = options.view_as(JobServerOptions).job_server_java_launcher
    if isinstance(runner, FlinkRunner | SparkRunner) and not (
        flink.flink_submit_uber_jar or spark.spark_submit_uber_jar or shutil.which(java)
    ):
        raise ParameterError(
            f"after --, there is no {java!r} on the path, which runs Beam's job server; install Java or name a job"
            " server that runs with --job_endpoint=HOST:PORT"
        )


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


@contextlib.contextmanager
def local_resources(options: PipelineOptions) -> Iterator[LocalResources]:
    """A private directory for the shuffle, and a second thread if one process does it all; else nothing."""
    with run_directory() as folder:
        if not is_local(options):
            yield LocalResources()
            return
        alone = worker_count(options) == 1
        yield LocalResources(threads=min(2, os.cpu_count() or 1) if alone else 1, spill=str(folder))
