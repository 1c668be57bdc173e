"""Several workers without a port: what listens while a job runs, who can speak to a worker, how workers end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow.parquet as pq
import pytest
from apache_beam.transforms.userstate import BagStateSpec

from hushgram.errors import HushgramError, InputError
from hushgram.pipelines.run.beam_runners import new_pipeline, pipeline_options
from hushgram.pipelines.run.progress import read_counters, run_pipeline
from hushgram.publishing import temporary_files_of_a_run
from tests.pipelines.sockets import children, listening, tree
from tests.transforms.releases import contents, records


class Look(beam.DoFn):
    """Says in which process it runs and what listens around it."""

    def __init__(self, root: int) -> None:
        self._root = root

    def process(self, number: int) -> Iterator[tuple[int, list[str]]]:
        yield os.getpid(), listening(self._root)


def looks(arguments: list[str], workers: int, folder: Path) -> tuple[set[int], list[str]]:
    """Processes that did the work of a job with this many workers, and what listened."""
    before = listening(os.getpid())  # a server that other tests have started
    options = pipeline_options(arguments, workers=workers)
    pipeline = new_pipeline(options)
    _ = (
        pipeline
        | beam.Create(range(12))
        | beam.Reshuffle()
        | beam.ParDo(Look(os.getpid()))
        | beam.Map(lambda seen: (folder / f"{time.monotonic_ns()}").write_text(f"{seen[0]} {seen[1]}\n"))
    )
    run_pipeline(pipeline, options, title="look", quiet=True)
    said = [path.read_text().split(" ", 1) for path in folder.iterdir()]
    assert len(said) == 12
    return {int(pid) for pid, _ in said}, [text for _, text in said if text != f"{before}\n"]


def test_a_listener_is_seen() -> None:
    before = listening(os.getpid())  # a server that other tests have started
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(family) as server:
            server.listen()
            assert len(listening(os.getpid())) == len(before) + 1
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0hushgram-test-listener-{os.getpid()}".encode())
        server.listen()
        assert len(listening(os.getpid())) == len(before) + 1
    assert listening(os.getpid()) == before


@pytest.mark.parametrize(
    ("workers", "arguments", "processes", "around"),
    [
        (1, [], 1, contextlib.nullcontext),
        (2, [], 2, contextlib.nullcontext),
        (3, [], 3, contextlib.nullcontext),
        (3, [], 3, temporary_files_of_a_run),  # forked, as by the command
        (1, ["--direct_num_workers=2"], 2, temporary_files_of_a_run),
        (1, ["--direct_running_mode=multi_threading"], 1, temporary_files_of_a_run),
        (2, ["--direct_running_mode=multi_threading"], 2, temporary_files_of_a_run),
        (
            1,
            ["--direct_num_workers=2", "--direct_running_mode=multi_processing"],
            2,
            temporary_files_of_a_run,
        ),
    ],
)
@pytest.mark.long
def test_no_worker_listens(
    workers: int, arguments: list[str], processes: int, around: Any, tmp_path: Path
) -> None:
    before = children(os.getpid())
    with around():
        pids, heard = looks(arguments, workers, tmp_path)
    assert heard == []
    assert len(pids) == processes
    assert (os.getpid() in pids) == (processes == 1)
    assert children(os.getpid()) <= before  # every worker has ended with the job


def test_no_worker_is_forked_beside_grpc() -> None:
    """gRPC has threads once there is a server or a channel; what they hold, a forked process would wait for."""
    script = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "import grpc, os\n"
        "from hushgram.pipelines.run.worker_processes import _grpc_has_threads\n"
        "before = _grpc_has_threads()\n"
        "server = grpc.server(ThreadPoolExecutor(1))\n"
        "server.add_insecure_port(f'unix-abstract:hushgram-test-{os.getpid()}')\n"
        "server.start()\n"
        "print(before, _grpc_has_threads())\n"
        "server.stop(0)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout == "False True\n"


CONFIG = """
release: urls
input: {{path: {input}, user: user, key: url}}
output: {{path: {output}}}
privacy: {{epsilon: 1, max_contributions: 4}}
workers: 2
"""


@pytest.mark.long
def test_a_release_in_two_processes_has_no_listening_socket_and_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command as a user runs it, looked at from the outside until it ends; also by `ss`, where it is installed."""
    pq.write_table(records(2500, users=100), tmp_path / "a.parquet", row_group_size=500)
    (tmp_path / "key").write_text("ab" * 32)
    monkeypatch.setenv("HUSHGRAM_RELEASE_KEY_FILE", str(tmp_path / "key"))
    config = tmp_path / "urls.yaml"
    config.write_text(CONFIG.format(input=tmp_path / "a.parquet", output=tmp_path / "out.sketch"))
    command = [sys.executable, "-m", "hushgram.pipelines", "release", str(config), "--quiet"]
    job = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    heard: list[str] = []
    most = 0
    while job.poll() is None:
        most = max(most, len(tree(job.pid)))
        heard += listening(job.pid)
        if shutil.which("ss"):
            pids = {f"pid={pid}," for pid in tree(job.pid)}
            lines = subprocess.run(["ss", "-Htulnp"], capture_output=True, text=True, check=True).stdout
            heard += [line for line in lines.splitlines() if any(pid in line for pid in pids)]
        time.sleep(0.02)
    assert job.returncode == 0
    assert heard == []
    assert most == 3
    alone = ["--set", "workers=1", "--set", f"output.path={tmp_path / 'one.sketch'}"]
    subprocess.run([*command, *alone], check=True, stderr=subprocess.DEVNULL)
    assert contents(tmp_path / "out.sketch") == contents(tmp_path / "one.sketch")


SEEN = beam.DoFn.StateParam(BagStateSpec("seen", beam.coders.VarIntCoder()))


class Remember(beam.DoFn):
    """State across elements of a key."""

    def process(self, pair: tuple[int, int], seen: Any = SEEN) -> Iterator[int]:
        seen.add(pair[1])
        yield sum(seen.read())


def count(value: int, of: list[int]) -> int:
    beam.metrics.Metrics.counter("hushgram", "rows").inc()
    return value + len(of)


@pytest.mark.long
def test_side_inputs_state_and_counters_cross_the_border(tmp_path: Path) -> None:
    options = pipeline_options([], workers=2)
    pipeline = new_pipeline(options)
    side = pipeline | "Side" >> beam.Create(range(1000))
    numbers = pipeline | beam.Create([1, 2, 3, 4])
    sums = (
        numbers
        | beam.Reshuffle()
        | beam.Map(count, of=beam.pvalue.AsList(side))
        | beam.WithKeys(lambda _: 7)
        | beam.ParDo(Remember())
        | beam.combiners.ToList()
    )
    sums | "Write" >> beam.Map(lambda found: (tmp_path / "out").write_text(str(max(found))))
    result = run_pipeline(pipeline, options, title="t", quiet=True)
    assert (tmp_path / "out").read_text() == str(4 * 1000 + 10)
    assert read_counters(result) == {"rows": 4}


def refuse(value: int) -> int:
    raise InputError("data/a.csv: cannot be read")


def die(value: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return value


@pytest.mark.parametrize("around", [contextlib.nullcontext, temporary_files_of_a_run])
@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (refuse, InputError, "data/a.csv: cannot be read"),
        (die, HushgramError, "a worker process ended before its work was done"),
    ],
)
@pytest.mark.long
def test_a_workers_end_is_one_line(function: Any, kind: type[Exception], text: str, around: Any) -> None:
    before = children(os.getpid())
    options = pipeline_options([], workers=2)
    pipeline = new_pipeline(options)
    pipeline | beam.Create(range(8)) | beam.Reshuffle() | beam.Map(function)
    with pytest.raises(kind, match=text) as caught, around():
        run_pipeline(pipeline, options, title="t", quiet=True)
    assert "\n" not in str(caught.value)
    assert children(os.getpid()) <= before


ORPHANS = """
import os, sys, time
import apache_beam as beam
from hushgram.pipelines.run.beam_runners import new_pipeline, pipeline_options
pipeline = new_pipeline(pipeline_options([], workers=2))
folder = sys.argv[1]
def wait(number):
    open(f"{folder}/{os.getpid()}", "w").close()
    time.sleep(60)
pipeline | beam.Create(range(4)) | beam.Reshuffle() | beam.Map(wait)
pipeline.run()
"""


def until(true: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.05)


def test_workers_of_a_killed_job_end(tmp_path: Path) -> None:
    job = subprocess.Popen([sys.executable, "-c", ORPHANS, str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        until(lambda: len(os.listdir(tmp_path)) == 2)
    finally:
        job.kill()
        job.wait()
    until(lambda: not any(Path("/proc", pid).exists() for pid in os.listdir(tmp_path)))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become somebody else")
@pytest.mark.long
def test_another_user_reaches_nothing_of_a_worker(tmp_path: Path) -> None:
    """The pair of sockets has no name; what the system shows of a worker's handles is for its user alone."""
    job = subprocess.Popen([sys.executable, "-c", ORPHANS, str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        until(lambda: len(os.listdir(tmp_path)) == 2)
        script = (
            "import os,sys;os.setgroups([]);os.setgid(65534);os.setuid(65534)\n"
            "for pid in sys.argv[1:]:\n"
            "    for name in ('fd', 'environ', 'mem'):\n"
            "        try: (os.listdir if name == 'fd' else open)(f'/proc/{pid}/{name}'); print(pid, name)\n"
            "        except PermissionError: pass\n"
        )
        pids = [str(pid) for pid in tree(job.pid)]
        seen = subprocess.run(
            [sys.executable, "-c", script, *pids], capture_output=True, text=True, check=True
        )
        assert len(pids) == 3
        assert seen.stdout == ""
    finally:
        job.kill()
        job.wait()
