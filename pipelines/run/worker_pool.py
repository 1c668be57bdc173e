"""Start Python workers for a Flink TaskManager (or Prism) on the same machine.

    python -m hushgram.pipelines.run.worker_pool --port=50000

Anyone who can connect to a worker pool can run code in it. Beam's own pool listens on every interface; this one listens
on one address, by default the loopback address. Every worker is a process. One that has imported everything waits for
the next job, because starting Python takes a second or two of each job otherwise; it is replaced when a worker ends.

Workers get the options of the job, as in Beam's containers, so that those of file systems (``--s3_endpoint_url``,
``--hdfs_host``) have an effect in them. Workers of Beam's own pool have none, and cannot open s3:// and hdfs://.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
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
from apache_beam.runners.worker.worker_pool_main import (
    BeamFnExternalWorkerPoolServicer,
    kill_process_gracefully,
)

__all__ = ["WorkerPool", "main", "run_worker", "wait_for_work"]

_PROVISION_SECONDS = 60.0
_PRELOADED = (
    "hushgram.transforms.read_records",
    "hushgram.transforms.release_sparse_histogram",
    "pyarrow.parquet",
)


class WorkerPool(BeamFnExternalWorkerPoolServicer):
    """Beam's pool, with workers that know the options of the job, and one that is started before it is asked for."""

    def __init__(self) -> None:
        super().__init__(use_process=True)
        self._lock = threading.Lock()
        self._spare: subprocess.Popen[str] | None = None
        self._given: dict[str, list[subprocess.Popen[str]]] = {}
        self._prepare()

    def StartWorker(self, start_worker_request: Any, unused_context: Any) -> Any:
        """Give a process to a worker."""
        asked = start_worker_request
        named = json.dumps([asked.worker_id, asked.control_endpoint.url, asked.provision_endpoint.url])
        try:
            process = self._take(named)
        except OSError as problem:
            return beam_fn_api_pb2.StartWorkerResponse(error=str(problem))
        with self._lock:
            self._given.setdefault(asked.worker_id, []).append(process)
        threading.Thread(target=self._replace, args=(process,), daemon=True).start()
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, stop_worker_request: Any, unused_context: Any) -> Any:
        """End the process of a worker.

        Engines number their workers from 1, so several that share a pool use the same ids. Where it is not clear
        whose worker is meant, none is ended: each ends by itself when its engine closes the connection.
        """
        with self._lock:
            same = self._given.get(stop_worker_request.worker_id, [])
            ended = [process for process in same if process.poll() is not None]
            meant = ended[0] if ended else same[0] if len(same) == 1 else None
            if meant is not None:
                same.remove(meant)
        if meant is not None:
            kill_process_gracefully(meant)
        return beam_fn_api_pb2.StopWorkerResponse()

    def _take(self, named: str) -> subprocess.Popen[str]:
        with self._lock:
            spare, self._spare = self._spare, None
        for process in (spare, None):
            process = process or _new_process()
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(f"{named}\n")
                process.stdin.flush()
                return process
        raise OSError("a worker ended before it was used")

    def _replace(self, process: subprocess.Popen[str]) -> None:
        process.wait()
        self._prepare()

    def _prepare(self) -> None:
        """Have a process that waits, while no worker needs the processors for its job."""
        with self._lock, contextlib.suppress(OSError):
            if self._spare is None or self._spare.poll() is not None:
                self._spare = _new_process()


# Not a function of this module: what is imported as __main__ is another module to pickle.
_WORKER = "from hushgram.pipelines.run.worker_pool import wait_for_work; wait_for_work()"


def _new_process() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _WORKER], stdin=subprocess.PIPE, text=True)


def wait_for_work() -> None:
    """Import what a release needs, and run the worker that the pool names; end if the pool does."""
    for module in _PRELOADED:
        importlib.import_module(module)
    if named := sys.stdin.readline():
        run_worker(*json.loads(named))


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
    servicer = WorkerPool()
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(servicer, server)
    server.start()
    print(f"starting workers for {chosen.host}:{port}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
