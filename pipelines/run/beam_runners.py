"""Choose and check the Beam runner: options after ``--`` go to Beam unchanged; without a runner the job runs locally.

Beam's DirectRunner first tries Prism, a Go program that it downloads, and falls back to the Python runner if that
fails. A private release should depend neither on a download nor on which of the two ran, so ``DirectRunner`` and no
runner both mean Beam's in-process FnApiRunner here; ``--runner=PrismRunner`` selects Prism. Several workers are
processes of our own (`worker_processes`), because Beam's modes with several workers open ports;
``direct_running_mode`` has no effect.

Options for engines are checked before any budget is charged. Options that cannot work are refused in one line, and so
are Beam's LOOPBACK workers, which run code from anyone on the network.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import logging
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    PipelineOptions,
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
from apache_beam.transforms import userstate

from hushgram.errors import ParameterError
from hushgram.pipelines.run.worker_processes import WorkerProcesses
from hushgram.processes import reuse_memory
from hushgram.publishing import active_directory, run_directory
from hushgram.transforms.shuffle import Cost
from hushgram.transforms.shuffle.coders import close_spill_files
from hushgram.transforms.shuffle.combining import LocalResources, shards_for

__all__ = [
    "LOCAL",
    "check_engine",
    "hint_memory",
    "is_local",
    "local_resources",
    "new_pipeline",
    "pipeline_options",
    "worker_count",
]

_log = logging.getLogger(__name__)


def check_engine(options: PipelineOptions) -> None:
    """Refuse what the engine named in `options` could not run, or could not run safely."""
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
    if options.get_all_options().get("template_location"):
        raise ParameterError(
            "after --, --template_location: templates cannot publish a release, since nobody waits for their job; run"
            " hushgram itself from the scheduler, for example in the image of packaging/launcher.Dockerfile"
        )
    if isinstance(runner, PortableRunner):
        given = options.get_all_options()
        _refuse_loopback(runner, given)
        _find_parts(runner, given)
    if problems := PipelineOptionsValidator(options, runner).validate():
        reasons = "; ".join(" ".join(str(problem).split()) for problem in problems)
        raise ParameterError(f"after --, Beam refuses its options: {reasons}")
    if isinstance(runner, PrismRunner):
        _log.warning(
            "warning: Prism listens on every network interface without authentication: anyone who can connect to this"
            " machine can read the records and the release key; use it for synthetic data, or behind a firewall"
        )


def _refuse_loopback(runner: Any, given: dict[str, Any]) -> None:
    default = (
        isinstance(runner, PrismRunner)
        or (isinstance(runner, FlinkRunner) and given["flink_master"] in MAGIC_HOST_NAMES)
        or (isinstance(runner, SparkRunner) and re.match(LOCAL_MASTER_PATTERN, given["spark_master_url"]))
    )
    if given["environment_type"] == "LOOPBACK" or (default and not given["environment_type"]):
        raise ParameterError(
            "after --, LOOPBACK workers (Beam's default here) would run code from anyone on the network; start"
            " `python -m hushgram.pipelines.run.worker_pool --port=50000` and add --environment_type=EXTERNAL"
            " --environment_config=localhost:50000"
        )


def _find_parts(runner: Any, given: dict[str, Any]) -> None:
    """Refuse options that name missing files, or an engine whose job server Beam could not start."""
    if given["job_endpoint"]:
        return  # a job server that runs already
    for kind, option in (
        (FlinkRunner, "flink_job_server_jar"),
        (SparkRunner, "spark_job_server_jar"),
        (PrismRunner, "prism_location"),
    ):
        path = given[option]
        if isinstance(runner, kind) and path and "://" not in path and not os.path.isfile(path):
            raise ParameterError(f"after --, --{option}={path}: there is no such file")
    java = given["job_server_java_launcher"]
    submits_jar = given["flink_submit_uber_jar"] or given["spark_submit_uber_jar"]
    if isinstance(runner, FlinkRunner | SparkRunner) and not (submits_jar or shutil.which(java)):
        raise ParameterError(
            f"after --, there is no {java!r} on the path, which runs Beam's job server; install Java or name a running"
            " job server with --job_endpoint=HOST:PORT"
        )


LOCAL = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
_LOCAL_NAMES = {"", "direct", "directrunner", "fnapirunner", "switchingdirectrunner", LOCAL.lower()}


def new_pipeline(options: PipelineOptions) -> beam.Pipeline:
    """Return a pipeline on the runner that `options` (see `pipeline_options`) name."""
    runner = None
    if is_local(options):
        reuse_memory()  # before the runner starts threads
        _inspect_once()
        processes = None
        if worker_count(options) > 1:
            processes = WorkerProcesses(JobServiceHandle.encode_pipeline_options(options.get_all_options()))
        # Beam's modes with several workers open ports; our processes are used in every mode.
        options.view_as(DirectOptions).direct_running_mode = "in_memory"
        runner = fn_runner.FnApiRunner(provision_info=processes)
    pipeline = beam.Pipeline(runner, options=options)
    if (folder := active_directory()) is not None:
        os.rmdir(pipeline.local_tempdir)
        pipeline.local_tempdir = tempfile.mkdtemp(prefix="beam-", dir=folder)
    return pipeline


@cache
def _inspect_once() -> None:
    """Let Beam inspect the methods of a DoFn once in place of up to eight times (docs/decisions/143)."""
    inspect, known = userstate.get_dofn_specs, WeakKeyDictionary[Any, Any]()

    def get_dofn_specs(dofn: Any) -> Any:
        if dofn not in known:
            known[dofn] = inspect(dofn)
        return known[dofn]

    userstate.get_dofn_specs = get_dofn_specs


# Bytes of input per record where they are fewest, Parquet with two columns; and what a hint is rounded up to.
_LEAST_BYTES, _HINT_STEP = 10, 1 << 29


def hint_memory(options: PipelineOptions, input_bytes: int, shards: int | None) -> None:
    """Tell Dataflow how much memory a worker needs, unless ``options`` do.

    The hint is that of the whole pipeline: stages with hints of their own run in an environment of their own, and all
    records would be sent from one to another. Other engines do not use hints.
    """
    standard = options.view_as(StandardOptions)
    if standard.runner != "DataflowRunner" or standard.resource_hints:
        return
    spread, rows = shards_for(input_bytes, shards), input_bytes // _LEAST_BYTES
    need = Cost(rows=rows, users=rows, keys=0, shards=spread.users, groups=spread.groups).memory
    standard.resource_hints = [f"min_ram={math.ceil(need / _HINT_STEP) * _HINT_STEP}B"]


def pipeline_options(arguments: Sequence[str] = (), workers: int = 1) -> PipelineOptions:
    """Return the options of a job: the user's Beam arguments, with the local runner if they name none.

    `workers` above 1 runs the local job in that many processes; the result is the same, byte for byte.
    """
    if arguments and not arguments[0].startswith("-"):
        raise ParameterError(
            f"after --, expected Beam options such as --runner=FlinkRunner, got {arguments[0]!r}"
        )
    options = _parsed(list(arguments))
    FileSystems.set_options(options)  # the launcher lists, reads and publishes with them too
    if not is_local(options):
        check_engine(options)
        if options.get_all_options()["environment_type"] == "EXTERNAL":
            # Beam would run pip to list packages, for a file that workers of a pool never read.
            options.view_as(DebugOptions).add_experiment("disable_logging_submission_environment")
        return options
    options.view_as(StandardOptions).runner = LOCAL
    direct = options.view_as(DirectOptions)
    given = " ".join(arguments)
    if workers > 1 and "direct_num_workers" not in given:
        direct.direct_num_workers = workers
    if direct.direct_num_workers < 0:
        raise ParameterError(
            f"direct_num_workers must not be negative, got {direct.direct_num_workers}; state a number of processes"
        )
    if "sdk_harness_log_level" not in given:
        options.view_as(WorkerOptions).default_sdk_harness_log_level = "CRITICAL"
    return options


class _Options(PipelineOptions):
    """Options that make each view once: Beam asks for some at every transform, and each parses the arguments again."""

    def view_as(self, cls: Any) -> Any:
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def _parsed(arguments: list[str]) -> PipelineOptions:
    options, printed = _Options(arguments), io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):  # argparse prints its usage and exits
            options.get_all_options()
    except SystemExit:
        reason = printed.getvalue().strip().rpartition("error: ")[2] or " ".join(arguments)
        raise ParameterError(f"after --, Beam does not understand its options: {reason}") from None
    known = _known_options()
    for name in (argument.partition("=")[0] for argument in arguments if argument.startswith("--")):
        # An engine may have options of its own: for one, only what is nearly an option of Beam is a mistake.
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.75 if is_local(options) else 0.9)
        if name not in known and (close or is_local(options)):
            hint = (
                f"; did you mean {close[0]}?" if close else "; leave it out, or see Beam's pipeline options"
            )
            raise ParameterError(f"after --, Beam has no option {name}{hint}")
    return options


def _known_options() -> list[str]:
    """Return all options of Beam, in the spelling of the command line."""
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    kinds = [PipelineOptions]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if kind is not _Options and "_add_argparse_args" in vars(kind):
            kind._add_argparse_args(parser)
    return sorted(parser._option_string_actions)


def worker_count(options: PipelineOptions) -> int:
    """Return the number of processes of a local job; Beam's 0 means one per processor."""
    return options.view_as(DirectOptions).direct_num_workers or os.cpu_count() or 1


def is_local(options: Any) -> bool:
    """Return whether the job runs on this machine, in this process or its children."""
    return (options.view_as(StandardOptions).runner or "").lower() in _LOCAL_NAMES


@contextlib.contextmanager
def local_resources(options: PipelineOptions) -> Iterator[LocalResources]:
    """Provide a private directory for the shuffle, and a second thread for a local job of one process."""
    with run_directory() as folder:
        if not is_local(options):
            yield LocalResources()
            return
        alone = worker_count(options) == 1
        try:
            yield LocalResources(threads=min(2, os.cpu_count() or 1) if alone else 1, spill=str(folder))
        finally:
            close_spill_files()
