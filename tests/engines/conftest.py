"""Engines for the tests of this folder: started once, on the loopback interface, stopped at the end.

They take minutes, so plain `make test` skips them and says so; `make test-flink` sets
HUSHGRAM_REQUIRE_ENGINES=1, and then a part that cannot be had is a failure, not a skip.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.jobs import Bench, make_data
from tools.engines.flink import FlinkCluster, JobServer
from tools.engines.prism import Prism
from tools.engines.provision import Engines, EnginesUnavailable, missing, provision
from tools.engines.spark import Spark
from tools.engines.workers import WorkerPools

REQUIRED = os.environ.get("HUSHGRAM_REQUIRE_ENGINES") == "1"


def _unavailable(reason: str) -> None:
    if REQUIRED:
        pytest.fail(f"engines are required here, but: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def engines() -> Engines:
    """Flink, job server, Prism and the environment that holds only the wheel."""
    if not REQUIRED:
        pytest.skip(missing() or "engine tests take minutes: run `make test-flink`")
    try:
        return provision(with_spark=True)
    except EnginesUnavailable as problem:
        _unavailable(str(problem))
        raise


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configuration, logs and data of the engines; pytest keeps the last three of them."""
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="session")
def pools(engines: Engines, work: Path) -> Iterator[WorkerPools]:
    pools = WorkerPools(engines.python, work)
    yield pools
    pools.stop()


@pytest.fixture(scope="session")
def flink(engines: Engines, work: Path) -> Iterator[FlinkCluster]:
    """One JobManager and two TaskManagers with two slots each."""
    cluster = FlinkCluster(engines, work)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def job_server(engines: Engines, flink: FlinkCluster, work: Path) -> Iterator[JobServer]:
    server = JobServer(engines, flink, work)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def prism(engines: Engines, work: Path) -> Iterator[Prism]:
    if engines.prism is None:
        _unavailable("no go on the path: Prism is built from Beam's Go module")
    server = Prism(engines, work)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def spark(engines: Engines, work: Path) -> Iterator[Spark]:
    server = Spark(engines, work)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def bench(engines: Engines, work: Path) -> Bench:
    """Page views, a release key and configs, for jobs that the installed command runs."""
    return make_data(engines, work / "bench")


@pytest.fixture
def on_flink(flink: FlinkCluster, job_server: JobServer, pools: WorkerPools) -> list[str]:
    """Beam options for the cluster: what a user writes after `--`."""
    return [
        "--runner=FlinkRunner",
        f"--flink_master={flink.address}",
        *job_server.options,
        *pools.options,
        # Workers outlive a stage by this long, so that not every stage starts Python anew. Shorter than the
        # restart delay, so that a restarted job never meets the dead worker of the attempt before.
        "--environment_cache_millis=1000",
    ]
