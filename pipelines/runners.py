"""Which runner: options after ``--`` go to Beam unchanged; without a runner the job stays in this process.

Beam's DirectRunner first tries Prism, a Go program that it downloads, and falls back to the Python runner
when that fails. A private release should not depend on a download, nor on which of the two ran:
``DirectRunner`` and no runner at all mean Beam's in-process FnApiRunner here. Prism is asked for by its name,
``--runner=PrismRunner``.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DirectOptions,
    PipelineOptions,
    StandardOptions,
    WorkerOptions,
)
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.transforms import environments

from hushgram.errors import ParameterError

__all__ = ["LOCAL", "is_local", "new_pipeline", "pipeline_options"]

LOCAL = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
_LOCAL_NAMES = {"", "direct", "directrunner", "fnapirunner", "switchingdirectrunner", LOCAL.lower()}


def new_pipeline(options: PipelineOptions) -> beam.Pipeline:
    """A pipeline on the runner that `options` (see `pipeline_options`) name."""
    if not is_local(options):
        return beam.Pipeline(options=options)
    # Worker processes learn their options (log level among them) only through the provision service.
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    provision = fn_runner.ExtendedProvisionInfo(
        beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    )
    direct = options.view_as(DirectOptions)
    environment = None
    if direct.direct_running_mode == "multi_processing":
        # What Beam would start, without its chatter on standard error; failures come back through the runner.
        environment = environments.SubprocessSDKEnvironment.from_command_string(
            f"{shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main 2>{os.devnull}"
        )
        direct.direct_running_mode = "in_memory"  # the environment above says it all
    runner = fn_runner.FnApiRunner(default_environment=environment, provision_info=provision)
    return beam.Pipeline(runner, options=options)


def pipeline_options(arguments: Sequence[str] = (), workers: int = 1) -> PipelineOptions:
    """Options of a job: the user's Beam arguments, and the local runner where they name none.

    `workers` above 1 runs the local job in that many processes; the result is the same, byte for byte.
    """
    unknown = [text for text in arguments if not text.startswith("-")]
    if arguments and not arguments[0].startswith("-"):
        raise ParameterError(
            f"after --, expected Beam options such as --runner=FlinkRunner, got {unknown[0]!r}"
        )
    try:
        options = PipelineOptions(list(arguments))
        standard = options.view_as(StandardOptions)
    except SystemExit:  # argparse has printed what is wrong
        raise ParameterError(f"after --, Beam does not understand {' '.join(arguments)!r}") from None
    if not is_local(options):
        return options
    standard.runner = LOCAL
    direct = options.view_as(DirectOptions)
    given = " ".join(arguments)
    if workers > 1 and "direct_num_workers" not in given:
        direct.direct_num_workers = workers
    if "direct_running_mode" not in given:
        direct.direct_running_mode = "multi_processing" if direct.direct_num_workers > 1 else "in_memory"
    if "sdk_harness_log_level" not in given:
        options.view_as(WorkerOptions).default_sdk_harness_log_level = "CRITICAL"
    return options


def is_local(options: Any) -> bool:
    """Whether the job runs on this machine, in this process or its children."""
    return (options.view_as(StandardOptions).runner or "").lower() in _LOCAL_NAMES
