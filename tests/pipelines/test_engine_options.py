"""Options for engines: what cannot run or would let others in is refused before the ledger is asked."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from apache_beam.portability.api import beam_fn_api_pb2

from hushgram.errors import ParameterError
from hushgram.pipelines.run import worker_pool
from hushgram.pipelines.run.beam_runners import pipeline_options
from tests.pipelines.sockets import listening

EXTERNAL = ["--environment_type=EXTERNAL", "--environment_config=localhost:50000"]
FLINK = ["--runner=FlinkRunner", "--flink_master=host:8081", *EXTERNAL]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--runner=FlinkRuner"], "there is no runner 'FlinkRuner'; use FlinkRunner"),
        (["--runner=nowhere.Runner"], "runner nowhere.Runner cannot be used here: No module named 'nowhere'"),
        (["--runner=hushgram.errors.Runner"], "runner hushgram.errors.Runner cannot be used here"),
        ([*FLINK, "--flink_job_server_jar=/no/such.jar"], "/no/such.jar: there is no such file"),
        ([*FLINK, "--job_server_java_launcher=/no/java"], "there is no '/no/java' on the path"),
        (["--runner=PrismRunner", *EXTERNAL, "--prism_location=/no/prism"], "there is no such file"),
        (["--runner=FlinkRunner", "--parallelism=many"], "argument --parallelism: invalid int value: 'many'"),
        (
            ["--runner=FlinkRunner", "--flink_master=h:1", "--environment_type=EXTERNAL"],
            "external_service_address is required",
        ),
        (["--direct_num_workers=two"], "argument --direct_num_workers: invalid int value: 'two'"),
    ],
)
def test_what_cannot_run_is_one_line(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ParameterError) as caught:
        pipeline_options(arguments)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--runner=PrismRunner"],
        ["--runner=FlinkRunner", "--flink_master=[local]"],
        ["--runner=FlinkRunner"],
        ["--runner=SparkRunner", "--spark_master_url=local[4]"],
        ["--runner=FlinkRunner", "--flink_master=host:8081", "--environment_type=LOOPBACK"],
        ["--runner=PortableRunner", "--job_endpoint=localhost:8099", "--environment_type=LOOPBACK"],
    ],
)
def test_workers_that_anybody_may_use_are_refused(arguments: list[str]) -> None:
    with pytest.raises(
        ParameterError, match=r"LOOPBACK workers .* would run code from anyone on the network"
    ):
        pipeline_options(arguments)


def test_prism_is_said_to_be_open(caplog: pytest.LogCaptureFixture) -> None:
    pipeline_options(["--runner=PrismRunner", *EXTERNAL])
    assert "Prism listens on every network interface" in caplog.text
    caplog.clear()
    pipeline_options([*FLINK, "--job_endpoint=localhost:8099"])
    assert caplog.text == ""


def test_packages_are_not_listed_for_workers_of_a_pool() -> None:
    """Beam runs pip for that list."""
    options = pipeline_options([*FLINK, "--job_endpoint=localhost:8099", "--experiments=other"])
    assert options.get_all_options()["experiments"] == ["other", "disable_logging_submission_environment"]


@pytest.mark.long
def test_our_worker_pool_listens_on_the_loopback_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hushgram.pipelines.run.worker_pool"]
    pool = subprocess.Popen(
        [*command, "--port=0"], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    )
    try:
        assert pool.stdout is not None
        said = pool.stdout.readline().strip()
        assert said.startswith("starting workers for 127.0.0.1:")
        found = listening(pool.pid)
        assert len(found) == 1
        assert "0100007F:" in found[0]
        taken = said.rpartition(":")[2]
        second = subprocess.run([*command, f"--port={taken}"], capture_output=True, text=True, timeout=60)
        assert second.returncode == 1
        assert f"error: cannot listen on 127.0.0.1:{taken}" in second.stderr.splitlines()[-1]
    finally:
        pool.kill()
        pool.communicate()


class Pool(worker_pool.WorkerPool):
    """A pool that is asked as an engine asks it; its workers are `WORKER`."""

    def start(self, worker: str, control: str) -> None:
        asked = beam_fn_api_pb2.StartWorkerRequest(worker_id=worker)
        asked.control_endpoint.url = control
        assert self.StartWorker(asked, None).error == ""

    def stop(self, worker: str) -> None:
        self.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id=worker), None)


WORKER = """
import json, pathlib, sys, time
if named := sys.stdin.readline():
    worker, control, provision = json.loads(named)
    folder = pathlib.Path(%r)
    (folder / control).write_text(worker + provision)
    while not (folder / f"end-{control}").exists():
        time.sleep(0.02)
    (folder / f"ended-{control}").touch()
"""


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    monkeypatch.setattr(worker_pool, "_WORKER", WORKER % str(tmp_path))
    return Pool()


def wait_for(path: Path) -> None:
    while not path.exists():  # a worker that never comes is the time limit of the test
        time.sleep(0.02)


def test_a_worker_waits_before_it_is_asked_for(pool: Pool, tmp_path: Path) -> None:
    ready = pool._spare
    assert ready is not None
    pool.start("1-1", "a")
    assert pool._given["1-1"] == [ready]
    wait_for(tmp_path / "a")
    pool.start("1-2", "b")  # the processors are busy with the job: none was prepared meanwhile
    assert pool._spare is None
    for worker in ("1-1", "1-2"):
        pool.stop(worker)
    assert ready.poll() is not None
    while pool._spare is None:
        time.sleep(0.02)
    pool._spare.kill()  # a dead one is not given to anyone
    pool._spare.wait()
    pool.start("2-1", "c")
    wait_for(tmp_path / "c")
    pool.stop("2-1")


def test_engines_that_share_a_pool_do_not_end_each_others_workers(pool: Pool, tmp_path: Path) -> None:
    """Each numbers its workers from 1; one ends its own by closing the connection, then asks the pool to stop it."""
    for control in ("a", "b"):
        pool.start("1-1", control)
        wait_for(tmp_path / control)
    first, second = pool._given["1-1"]
    pool.stop("1-1")  # whose?
    assert first.poll() is second.poll() is None
    (tmp_path / "end-a").touch()
    first.wait()
    pool.stop("1-1")
    assert second.poll() is None
    pool.stop("1-1")
    assert second.poll() is not None
    assert not (tmp_path / "ended-b").exists()
