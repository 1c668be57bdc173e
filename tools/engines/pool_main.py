"""Beam's external worker pool on one given loopback address; run by the interpreter that holds only the
wheel.

    python pool_main.py 127.0.0.2 50000

Beam's own entry point (apache_beam.runners.worker.worker_pool_main) listens on every interface, so two
machines cannot be played on one host with it. The servicer is Beam's, unchanged; workers are processes.
"""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc  # type: ignore[import-untyped]
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer


def main(host: str, port: str) -> None:
    server = grpc.server(ThreadPoolExecutor(max_workers=16))
    if server.add_insecure_port(f"{host}:{port}") == 0:
        raise SystemExit(f"cannot listen on {host}:{port}")
    servicer = BeamFnExternalWorkerPoolServicer(use_process=True, data_buffer_time_limit_ms=-1)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(servicer, server)
    server.start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
