"""Start Python workers for a Flink TaskManager (or Prism) on the same machine.

    python -m hushgram.pipelines.run.worker_pool --port=50000

Anyone who can connect to a worker pool can run code in it. Beam's own pool listens on every interface; this one listens
on one address, by default the loopback address. The servicer is Beam's, unchanged; every worker is a process.
"""

from __future__ import annotations

import argparse
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc  # type: ignore[import-untyped]
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer

__all__ = ["main"]


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
    servicer = BeamFnExternalWorkerPoolServicer(use_process=True, data_buffer_time_limit_ms=-1)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(servicer, server)
    server.start()
    print(f"starting workers for {chosen.host}:{port}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
