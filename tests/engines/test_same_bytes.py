"""One release key, one result: library, local runner, Flink with 1, 2 and 4 slots, Prism, Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.engines.jobs import EPSILON, KEY, Bench, contents
from tools.engines.flink import FlinkCluster
from tools.engines.prism import Prism
from tools.engines.provision import Engines
from tools.engines.spark import Spark
from tools.engines.workers import WorkerPools

pytestmark = pytest.mark.engine

TEXTS = {"privacy.delta": "1e-6"}

LIBRARY = f"""
import sys
import pyarrow.parquet as pq
from hushgram import ReleaseKey, ReleaseParams, release

table = pq.read_table(sys.argv[1])
params = ReleaseParams(epsilon="{EPSILON}", max_contributions=6, max_per_key=2)
release(table["user"], table["url"], params, sys.argv[2], release_key=ReleaseKey.from_hex("{KEY}"), name="pages")
"""


@pytest.fixture(scope="module")
def by_library(bench: Bench) -> dict[str, bytes]:
    """The sketch of the plain library call: no Beam, one process."""
    target = bench.root / "library.sketch"
    script = bench.root / "library.py"
    script.write_text(LIBRARY)
    bench.run(bench.script(script, str(bench.root / "data"), str(target)))
    return contents(target)


@pytest.fixture(scope="module")
def answers(bench: Bench) -> bytes:
    """The answers of the local runner."""
    return bench.queries("local")


def test_local_runner(bench: Bench, by_library: dict[str, bytes]) -> None:
    assert set(by_library) >= {"manifest.json", "heavy.bin", "blocks-00000.bin"}
    assert bench.release("local") == by_library


def test_local_runner_in_two_processes(bench: Bench, by_library: dict[str, bytes]) -> None:
    options = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]
    assert bench.release("processes", options) == by_library


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_flink(bench: Bench, by_library: dict[str, bytes], on_flink: list[str], slots: int) -> None:
    assert bench.release(f"flink-{slots}", [*on_flink, f"--parallelism={slots}"]) == by_library


def test_the_first_shuffle_is_written_once(bench: Bench, flink: FlinkCluster, on_flink: list[str]) -> None:
    """Flink writes a stage once per output; tallies travel in the shuffle, so the first stage has one."""
    bench.release("written", [*on_flink, "--parallelism=2"])
    steps = flink.get(f"/jobs/{flink.jobs()[-1]['jid']}")["vertices"]
    (read,) = [step["metrics"] for step in steps if "{Read, Release}" in step["name"]]
    (group,) = [
        step["metrics"]
        for step in steps
        if step["name"].startswith("GroupReduce") and "BoundUsers" in step["name"]
    ]
    assert 0 < read["write-bytes"] <= 1.1 * group["read-bytes"]


@pytest.fixture(scope="module")
def texts(bench: Bench) -> dict[str, bytes]:
    """δ > 0 on the local runner: the text of keys travels too, and keys are selected by weights in two rounds."""
    here = bench.release("texts-local", settings=TEXTS)
    named = pq.read_table(pa.BufferReader(here["heavy.parquet"]))["key"].to_pylist()
    assert len(named) > 3
    assert all(key.startswith(b"https://e.org/") for key in named)
    return here


def test_key_texts_on_flink(bench: Bench, texts: dict[str, bytes], on_flink: list[str]) -> None:
    assert bench.release("texts-flink", [*on_flink, "--parallelism=2"], TEXTS) == texts


def test_prism(bench: Bench, by_library: dict[str, bytes], prism: Prism, pools: WorkerPools) -> None:
    assert bench.release("prism", [*prism.options, *pools.local_options]) == by_library


def test_spark(bench: Bench, by_library: dict[str, bytes], spark: Spark, pools: WorkerPools) -> None:
    assert bench.release("spark", [*spark.options, *pools.local_options]) == by_library


def test_key_texts_on_spark(bench: Bench, texts: dict[str, bytes], spark: Spark, pools: WorkerPools) -> None:
    assert bench.release("texts-spark", [*spark.options, *pools.local_options], TEXTS) == texts


@pytest.mark.parametrize("slots", [1, 4])
def test_answers_on_flink(bench: Bench, answers: bytes, on_flink: list[str], slots: int) -> None:
    assert answers.count(b"\n") > 8
    assert bench.queries(f"flink-{slots}", [*on_flink, f"--parallelism={slots}"]) == answers


def test_answers_on_prism(bench: Bench, answers: bytes, prism: Prism, pools: WorkerPools) -> None:
    assert bench.queries("prism", [*prism.options, *pools.local_options]) == answers


def test_flink_as_a_user_starts_it(
    bench: Bench,
    by_library: dict[str, bytes],
    engines: Engines,
    flink: FlinkCluster,
    pools: WorkerPools,
) -> None:
    """No job server of ours: Beam's FlinkRunner starts the jar itself, sends it along, and stops it."""
    options = [
        "--runner=FlinkRunner",
        f"--flink_master={flink.address}",
        f"--flink_job_server_jar={engines.job_server_jar}",
        "--parallelism=2",
        *pools.options,
    ]
    assert bench.release("user", options) == by_library
    started = f"-jar\0{engines.job_server_jar}\0--flink-master\0http://{flink.address}".encode()
    left = [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if started in _content(path)]
    assert not left, "the job server is still running"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # a process that has just ended


def test_no_log_holds_the_release_key(bench: Bench, work: Path, by_library: dict[str, bytes]) -> None:
    """Workers get the key inside the pipeline's code; it is in no log of any process of the cluster."""
    raw = bytes.fromhex(KEY)
    logs = sorted(work.rglob("*.log"))
    assert len(logs) >= 6
    for log in logs:
        content = log.read_bytes()
        assert KEY.encode() not in content.lower(), log
        assert raw not in content, log
