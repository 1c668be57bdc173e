"""Jobs on an engine, which can outlive their launcher: name them, cancel them, and wait for those of earlier runs.

A launcher that is stopped (Ctrl-C, SIGTERM) cancels its job. One that is killed cannot, and its job continues: the
ledger holds the job's id, and the next run of the same release waits for the job and publishes what it wrote.

A job is asked for in the engine itself where that is possible. Beam's job server is often a child of the launcher and
ends with it; and it reports a Flink job as cancelled before Flink has cancelled it.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from apache_beam.options.pipeline_options import GoogleCloudOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability.portable_runner import PipelineResult, PortableMetrics
from google.protobuf import json_format  # type: ignore[import-untyped]

from hushgram.noise.entropy import os_entropy

__all__ = ["ENDED", "EngineJob", "await_earlier", "flink_job", "name_job", "runner_name", "stop"]

_POLL_SECONDS = 1.0
_STOP_SECONDS = 60.0
_SUBMIT_SECONDS = 15.0  # within which a job appears whose submission was interrupted
_FINISHED = ("DONE", "UPDATED", "DRAINED")
#: states of a job that has ended
ENDED = (*_FINISHED, "FAILED", "CANCELLED")
_FLINK = {"FINISHED": "DONE", "FAILED": "FAILED", "CANCELED": "CANCELLED"}


@dataclass(frozen=True)
class EngineJob:
    """A job on an engine: the runner, Beam's id, and the name by which the engine lists it."""

    runner: str
    id: str
    name: str

    def write(self) -> str:
        """Return the text for the ledger."""
        return f"{self.runner} {self.id} {self.name}"

    @classmethod
    def read(cls, text: str) -> EngineJob:
        """Read what `write` wrote."""
        return cls(*text.split(" ", 2))


def runner_name(options: Any) -> str:
    """Return the name of the runner without its module."""
    return str(options.get_all_options().get("runner") or "DirectRunner").rsplit(".", 1)[-1]


def name_job(options: Any, title: str) -> str:
    """Give the job a name that no other job has, and return it; a name for Dataflow that the user gave stays."""
    chosen = options.view_as(GoogleCloudOptions)
    if chosen.job_name is None or runner_name(options) != "DataflowRunner":
        stem = re.sub("[^a-z0-9]+", "-", (chosen.job_name or f"hushgram-{title}").lower()).strip("-")[:60]
        chosen.job_name = f"{stem}-{os_entropy().take(4).tobytes().hex()}"
    return str(chosen.job_name)


def await_earlier(job: EngineJob, options: Any, report: Callable[[str], None]) -> bool:
    """Wait for the job of an earlier run of this release; return whether it finished."""
    label, reported = f"job {job.name} of an earlier run", False
    try:
        while True:
            state = _state(_reach(job, options))
            if state is None:
                report(f"{label} is not known to the engine any more; if it still runs elsewhere, cancel it")
                return False
            if state in ENDED:
                finished = state in _FINISHED
                report(f"{label} ended as {state}" + (": its output is published" if finished else ""))
                return finished
            if not reported:
                report(f"{label} is still running: waiting for it")
                reported = True
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        stop(job, options)
        raise


def stop(job: EngineJob, options: Any, result: Any = None) -> bool:
    """Cancel a job unless it has ended; return whether it has certainly ended."""
    handles = [handle for handle in (result, _reach(job, options)) if handle is not None]
    end = time.monotonic() + (_STOP_SECONDS if result is not None or job.id else _SUBMIT_SECONDS)
    asked = False
    while handles and time.monotonic() < end:
        states = [state for state in map(_state, handles) if state is not None]
        if states and all(state in ENDED for state in states):
            return True
        if states and not asked:
            asked = True
            for handle in handles:
                with contextlib.suppress(Exception):  # what Beam and its clients raise is not specified
                    handle.cancel()
            continue
        time.sleep(_POLL_SECONDS / 2)
    return False


def _state(handle: Any) -> str | None:
    """Return the state of a job in Beam's words; None where the engine cannot say."""
    with contextlib.suppress(Exception):
        return None if handle is None or (state := handle.state) is None else str(state)
    return None


def _reach(job: EngineJob, options: Any) -> Any:
    """Return an object with `state` and `cancel` for a job on the engine that `options` name; None if there is none."""
    endpoint = options.get_all_options().get("job_endpoint")
    if (flink := flink_job(job, options)) is not None:
        return flink
    if job.runner == "DataflowRunner" and job.id:
        with contextlib.suppress(Exception):  # no client, no credentials, no such job
            return _dataflow_job(job, options)
    if endpoint and job.id:
        import grpc  # type: ignore[import-untyped]

        stub = beam_job_api_pb2_grpc.JobServiceStub(grpc.insecure_channel(endpoint))
        return PipelineResult(stub, job.id, None, None)
    return None


def flink_job(job: EngineJob, options: Any) -> _FlinkJob | None:
    """Return a job of the Flink cluster that `options` name; None if they name none."""
    master = str(options.get_all_options().get("flink_master") or "[")
    if job.runner != "FlinkRunner" or master.startswith("["):
        return None
    return _FlinkJob(master if "://" in master else f"http://{master}", job.name)


def _dataflow_job(job: EngineJob, options: Any) -> Any:
    from apache_beam.runners.dataflow.dataflow_runner import DataflowPipelineResult, DataflowRunner
    from apache_beam.runners.dataflow.internal.apiclient import DataflowApplicationClient

    runner = DataflowRunner()
    runner.dataflow_client = DataflowApplicationClient(options)
    return DataflowPipelineResult(runner.dataflow_client.get_job(job.id), runner, options)


class _FlinkJob:
    """A job of a Flink cluster, by its name, through Flink's REST interface."""

    def __init__(self, master: str, name: str) -> None:
        self._master, self._name = master.rstrip("/"), name

    @property
    def state(self) -> str | None:
        """The state in Beam's words; None if Flink has no job of this name."""
        return next((_FLINK.get(job["state"], "RUNNING") for job in self._found()), None)

    def finished(self, result: Any) -> bool:
        """Return whether Flink has finished the job; then Beam's result has its counters.

        Beam's job server asks Flink only every two seconds, and knows the counters after that.
        """
        jobs = [job["jid"] for job in self._found() if job["state"] == "FINISHED"]
        if not jobs:
            return False
        with self._ask(f"/jobs/{jobs[0]}/accumulators", "GET") as reply:
            found = json.load(reply)["user-task-accumulators"]
        told = next(each["value"] for each in found if each["name"] == "__metricscontainers")
        result._metrics = PortableMetrics(json_format.Parse(told, beam_job_api_pb2.GetJobMetricsResponse()))
        return True

    def cancel(self) -> None:
        """Ask Flink to cancel it."""
        for job in self._found():
            self._ask(f"/jobs/{job['jid']}?mode=cancel", "PATCH").close()

    def _found(self) -> Iterator[dict[str, Any]]:
        with self._ask("/jobs/overview", "GET") as reply:
            yield from (job for job in json.load(reply)["jobs"] if job["name"] == self._name)

    def _ask(self, path: str, method: str) -> Any:
        request = urllib.request.Request(f"{self._master}{path}", method=method)
        return urllib.request.urlopen(request, timeout=20)
