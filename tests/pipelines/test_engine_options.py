"""Options for engines: what cannot run or would let others in is refused before the ledger is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hushgram.errors import ParameterError
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
