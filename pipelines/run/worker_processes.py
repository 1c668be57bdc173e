"""Run the workers of a local job as processes, each connected to the job by an unnamed socket pair only.

Beam's own local modes with several workers use gRPC over TCP ports of all interfaces, without authentication: anyone
who can connect can read the release key from the stages, and any file of the user through the artifact service. Here
nothing listens: a worker is a child process that inherits its end of a socket pair.

The runner gives a worker one bundle at a time, so both sides take turns and need no threads:

    job → worker   descriptor of a stage (once), instruction, elements
    worker → job   any number of elements and state requests (each answered), then the response

The command forks its workers. Inside another program, whose threads are unknown, and where gRPC has threads, which a
forked process cannot use, workers are started as new processes.
A worker ends when the job ends, however it ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    FNAPI_RUNNER_CAPABILITIES,
    MB_TO_BYTES,
    STATE_CACHE_SIZE_MB,
    ControlFuture,
    EmbeddedWorkerHandler,
    SingletonStateHandlerFactory,
    WorkerHandler,
)
from apache_beam.runners.worker import data_plane, sdk_worker, sdk_worker_main
from apache_beam.runners.worker.statecache import StateCache
from google.protobuf import json_format  # type: ignore[import-untyped]

from hushgram.errors import HushgramError
from hushgram.publishing import active_directory, process_is_one_run

__all__ = ["WorkerProcesses"]


class WorkerProcesses(ExtendedProvisionInfo):
    """Make each worker of a FnApiRunner a process of its own, if given to it as provision info."""

    def __init__(self, options: Any) -> None:
        super().__init__(beam_provision_api_pb2.ProvisionInfo(pipeline_options=options))

    def for_environment(self, env: Any) -> WorkerProcesses:
        return self


def _worker(payload: Any, state: Any, provision: Any, manager: Any) -> WorkerHandler:
    kind = _ProcessHandler if isinstance(provision, WorkerProcesses) else EmbeddedWorkerHandler
    return kind(payload, state, provision, manager)


# The in-process environment is the only one for which Beam's runner starts no server.
WorkerHandler.register_environment(python_urns.EMBEDDED_PYTHON, None)(_worker)


class _ProcessHandler(WorkerHandler):
    """The job's side of one worker."""

    def __init__(self, payload: Any, state: Any, provision: WorkerProcesses, manager: Any) -> None:
        super().__init__(self, data_plane.InMemoryDataChannel(), state, provision)
        self.control_conn = self
        self.data_conn = self.data_plane_handler
        self._manager = manager
        self._known: set[str] = set()
        self._turn = threading.Lock()

    def start_worker(self) -> None:
        self._pipe, theirs = Pipe()
        with theirs:
            if process_is_one_run() and sys.platform == "linux" and not _grpc_has_threads():
                self._kill, self._await = _fork(theirs, self._pipe)
            else:
                self._kill, self._await = _start(theirs)
                options = self.provision_info.provision_info.pipeline_options
                self._pipe.send(json_format.MessageToJson(options))

    def push(self, request: Any) -> ControlFuture:
        with self._turn:
            try:
                self._send(request)
                return ControlFuture(request.instruction_id, self._listen())
            except (EOFError, OSError):
                raise HushgramError(
                    "a worker process ended before its work was done (often: not enough memory for so many workers);"
                    " run the job again, with fewer workers"
                ) from None

    def _send(self, request: Any) -> None:
        stage = request.process_bundle.process_bundle_descriptor_id
        if stage and stage not in self._known:
            self._known.add(stage)
            self._pipe.send(("stage", self._manager._process_bundle_descriptors[stage].SerializeToString()))
        for element in self.data_conn.inverse().input_elements(request.instruction_id, ()):
            self._pipe.send(_packed(element))
        self._pipe.send(("do", request.SerializeToString()))

    def _listen(self) -> Any:
        while True:
            kind, content = self._pipe.recv()
            if kind == "done":
                return beam_fn_api_pb2.InstructionResponse.FromString(content)
            if kind == "state":
                self._pipe.send(self._ask(*content))
            else:
                self.data_conn._inputs.append(_unpacked(kind, content))

    def _ask(self, method: str, key: bytes, *arguments: Any) -> Any:
        answer = getattr(self.state, method)(beam_fn_api_pb2.StateKey.FromString(key), *arguments)
        return answer if method == "get_raw" else None

    def stop_worker(self) -> None:
        self._kill()
        self._await()
        self._pipe.close()

    def done(self) -> None:
        pass

    def data_api_service_descriptor(self) -> Any:
        return EmbeddedWorkerHandler.data_api_service_descriptor(self)

    def state_api_service_descriptor(self) -> None:
        return None

    def logging_api_service_descriptor(self) -> None:
        return None


class _RemoteState(sdk_worker.StateHandler):
    """State and side inputs, requested from the job."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def _ask(self, method: str, key: Any, *arguments: Any) -> Any:
        self._pipe.send(("state", (method, key.SerializeToString(), *arguments)))
        return self._pipe.recv()

    def get_raw(self, state_key: Any, continuation_token: bytes | None = None) -> Any:
        return self._ask("get_raw", state_key, continuation_token)

    def append_raw(self, state_key: Any, data: bytes) -> Any:
        self._ask("append_raw", state_key, data)
        return sdk_worker._Future.done()

    def clear(self, state_key: Any) -> Any:
        self._ask("clear", state_key)
        return sdk_worker._Future.done()

    @contextlib.contextmanager
    def process_instruction_id(self, bundle_id: str) -> Iterator[None]:
        yield

    def done(self) -> None:
        pass


def _start(theirs: Connection) -> tuple[Callable[[], object], Callable[[], object]]:
    """Start a worker as a new process: safe anywhere, takes about a second. Return how to kill it and wait for it."""
    folder = active_directory()
    worker = subprocess.Popen(
        [sys.executable, "-m", __name__, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env=os.environ | ({} if folder is None else {"TMPDIR": str(folder)}),
        stdin=subprocess.PIPE,  # never written to: it closes when the job ends
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # failures come back in responses
    )
    return worker.kill, worker.communicate


def _grpc_has_threads() -> bool:
    """True once this process has a gRPC channel or server: a process forked beside it crashes now and then."""
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            if (thread / "comm").read_text().startswith(("grpc", "event_engine", "lifeguard")):
                return True
    return False


def _fork(theirs: Connection, ours: Connection) -> tuple[Callable[[], object], Callable[[], object]]:
    """Fork a worker: immediate, if all threads are ours. Return how to kill it and wait for it."""
    worker = get_context("fork").Process(target=_forked, args=(theirs, ours, os.getpid()), daemon=True)
    worker.start()
    return worker.kill, worker.join


def _forked(pipe: Connection, of_job: Connection, job: int) -> None:
    of_job.close()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    with open(os.devnull, "r+b", buffering=0) as nowhere:
        for handle in (0, 1, 2):
            os.dup2(nowhere.fileno(), handle)
    _live(pipe, lambda: _wait_for_end_of(job))


def _wait_for_end_of(job: int) -> None:
    while os.getppid() == job:
        time.sleep(0.2)


def _packed(element: Any) -> tuple[str, bytes]:
    return type(element).__name__, element.SerializeToString()


def _unpacked(kind: str, content: bytes) -> Any:
    return getattr(beam_fn_api_pb2.Elements, kind).FromString(content)


def _serve(pipe: Connection) -> None:
    """Receive stages, elements and instructions; send elements and responses."""
    stages: dict[str, Any] = {}
    ours = data_plane.InMemoryDataChannel()
    state = sdk_worker.GlobalCachingStateHandler(
        StateCache(STATE_CACHE_SIZE_MB * MB_TO_BYTES), _RemoteState(pipe)
    )
    cache = sdk_worker.BundleProcessorCache(
        FNAPI_RUNNER_CAPABILITIES,
        SingletonStateHandlerFactory(state),
        data_plane.InMemoryDataChannelFactory(ours),
        stages,
    )
    worker = sdk_worker.SdkWorker(cache)
    while True:
        kind, content = pipe.recv()
        if kind == "stage":
            stage = beam_fn_api_pb2.ProcessBundleDescriptor.FromString(content)
            stages[stage.id] = stage
        elif kind == "do":
            request = beam_fn_api_pb2.InstructionRequest.FromString(content)
            response = _answer(worker, request)
            for element in ours.inverse().input_elements(request.instruction_id, ()):
                if not response.error:
                    pipe.send(_packed(element))
            pipe.send(("done", response.SerializeToString()))
        else:
            ours._inputs.append(_unpacked(kind, content))


def _answer(worker: Any, request: Any) -> Any:
    try:
        return worker.do_instruction(request)
    except Exception:
        return beam_fn_api_pb2.InstructionResponse(
            instruction_id=request.instruction_id, error=traceback.format_exc()
        )


def _live(pipe: Connection, end_of_the_job: Callable[[], object]) -> None:
    def watch() -> None:
        end_of_the_job()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the job decides what ends
    threading.Thread(target=watch, daemon=True).start()
    logging.disable(logging.CRITICAL)
    with contextlib.suppress(EOFError, OSError):
        _serve(pipe)


def _main() -> None:
    pipe = Connection(int(sys.argv[1]))
    options = {"PIPELINE_OPTIONS": pipe.recv(), "CONTROL_API_SERVICE_DESCRIPTOR": ""}
    # Sets up file systems, pickler, plug-ins and log levels.
    sdk_worker_main.create_harness(options, dry_run=True)
    _live(pipe, lambda: os.read(0, 1))


if __name__ == "__main__":
    _main()
