"""Options for engines, checked before anything is charged: is the runner there, are its parts, and who could listen in.

What cannot work is refused here in one line, as the ledger is not asked yet. What would let others in is refused or
said: Beam's LOOPBACK workers run any code that anybody on the network sends them, and Prism serves every interface.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from typing import Any

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    PrismRunnerOptions,
    SparkRunnerOptions,
    StandardOptions,
)
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.runners.portability.flink_runner import MAGIC_HOST_NAMES, FlinkRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.portability.prism_runner import PrismRunner
from apache_beam.runners.portability.spark_runner import LOCAL_MASTER_PATTERN, SparkRunner
from apache_beam.runners.runner import create_runner

from hushgram.errors import ParameterError

__all__ = ["check_engine"]

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
