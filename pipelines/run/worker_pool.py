"""Start Python workers for a Flink TaskManager (or Prism) on the same machine.

    python -m hushgram.pipelines.run.worker_pool --port=50000

Anyone who can connect to a worker pool can run code in it. Beam's own pool listens on every interface; this one listens
on one address, by default the loopback address. Every worker is a process.

Workers get the options of the job, as in Beam's containers, so that those of file systems (``--s3_endpoint_url``,
``--hdfs_host``) have an effect in them. Workers of Beam's own pool have none, and cannot open s3:// and hdfs://.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc  # type: ignore[import-untyped]
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
)
from apache_beam.runners.worker.sdk_worker import SdkHarness
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer

__all__ = ["WorkerPool", "main", "run_worker"]

_PROVISION_SECONDS = 60.0


class WorkerPool(BeamFnExternalWorkerPoolServicer):
    """Beam's pool, with workers that know the options of the job."""

    def StartWorker(self, start_worker_request: Any, unused_context: Any) -> Any:
        """Start the process of a worker."""
        asked = start_worker_request
        endpoints = asked.control_endpoint.url, asked.provision_endpoint.url
        command = [sys.executable, "-c", _WORKER, asked.worker_id, *endpoints]
        try:
            self._worker_processes[asked.worker_id] = subprocess.Popen(command)
        except OSError as problem:
            return beam_fn_api_pb2.StartWorkerResponse(error=str(problem))
        return beam_fn_api_pb2.StartWorkerResponse()


# Not a function of this module: what is imported as __main__ is another module to pickle.
_WORKER = "import sys; from hushgram.pipelines.run.worker_pool import run_worker; run_worker(*sys.argv[1:])"


def run_worker(worker_id: str, control: str, provision: str) -> None:
    """Run one worker until its engine ends it."""
    if provision:
        with grpc.insecure_channel(provision) as channel:
            asked = beam_provision_api_pb2.GetProvisionInfoRequest()
            stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
            found = stub.GetProvisionInfo(
                asked, metadata=[("worker_id", worker_id)], timeout=_PROVISION_SECONDS
            )
        FileSystems.set_options(PipelineOptions.from_runner_api(found.info.pipeline_options))
    SdkHarness(control, worker_id=worker_id, state_cache_size=0, data_buffer_time_limit_ms=-1).run()


def main(arguments: list[str] | None = None) -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser(prog="python -m hushgram.pipelines.run.worker_pool")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=50000, help="port to listen on (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    server = grpc.server(ThreadPoolExecutor(max_workers=16), options=[("grpc.so_reuseport", 0)])
    try:
        port = server.add_insecure_port(f"{chosen.host}:{chosen.port}")
    except RuntimeError:
        raise SystemExit(f"error: cannot listen on {chosen.host}:{chosen.port}") from None
    servicer = WorkerPool(use_process=True)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(servicer, server)
    server.start()
    print(f"starting workers for {chosen.host}:{port}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
