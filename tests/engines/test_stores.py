"""Stores with real servers: configs/flink.yaml on Flink with s3://, releases with gs:// and with hdfs://."""

from __future__ import annotations

import dataclasses
import getpass
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import boto3
import pyarrow.parquet as pq
import pytest

from hushgram.publishing import work_name
from tests.engines.conftest import REQUIRED
from tests.engines.jobs import Bench, contents
from tools.engines.hdfs import Hdfs
from tools.engines.processes import Process, free_port
from tools.engines.provision import EnginesUnavailable, gcs, hdfs

pytestmark = pytest.mark.engine
ROOT = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class StoreBench(Bench):
    """A bench whose commands find a server."""

    more: tuple[tuple[str, str], ...] = ()

    @property
    def env(self) -> dict[str, str]:
        return super().env | dict(self.more)


@pytest.fixture
def s3(work: Path) -> Iterator[str]:
    """A server of the S3 protocol on the loopback interface; its address."""
    command, port = shutil.which("moto_server", path=str(Path(sys.executable).parent)), free_port()
    assert command is not None
    server = Process("moto", [command, "-H", "127.0.0.1", "-p", str(port)], work / "moto.log")
    server.wait_for_port(port, 60)
    yield f"http://127.0.0.1:{port}"
    server.stop()


def test_the_flink_config_runs_as_documented(bench: Bench, s3: str, on_flink: list[str]) -> None:
    """The command in the header of configs/flink.yaml, with this cluster, this store and an SQLite ledger."""
    config = ROOT / "configs/flink.yaml"
    documented = set(re.findall(r"--(\w+)=", config.read_text().partition("# Each")[0]))
    given = {option.partition("=")[0].removeprefix("--") for option in on_flink} | {"parallelism"}
    assert documented - {"flink_version"} <= given  # which job_endpoint stands for here
    keys = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=s3, **keys)
    for bucket in ("logs", "sketches"):
        client.create_bucket(Bucket=bucket)
    for file in sorted((bench.root / "data").glob("*.parquet")):
        renamed = pq.read_table(file).rename_columns(["user_id", "url"])
        pq.write_table(renamed, bench.root / "renamed.parquet")
        client.upload_file(str(bench.root / "renamed.parquet"), "logs", f"pageviews/2026-11-15/{file.name}")
    url = f"sqlite:///{bench.root}/stores.db"
    bench.run(bench.command("ledger", "init", "--dataset", "pageviews", "--epsilon", "1", "--ledger", url))
    command = bench.command(
        "release", str(config), "--date", "2026-11-15", "--set", f"ledger={url}", "--log", "json", "--", *on_flink,
        "--parallelism=2", f"--s3_endpoint_url={s3}", "--s3_access_key_id=id", "--s3_secret_access_key=secret",
        "--s3_region_name=us-east-1",
    )  # fmt: skip
    finished = json.loads(bench.run(command).splitlines()[-1])
    assert finished["output"] == "s3://sketches/urls-2026-11-15.sketch"
    assert "is verified, nothing to do" in bench.run(command)
    environment = {"AWS_ENDPOINT_URL": s3, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
    reader = StoreBench(bench.engines, bench.root, (*environment.items(), ("AWS_REGION", "us-east-1")))
    bench_checked = reader.run(
        reader.command("query", finished["output"], "https://e.org/1", "--format", "json")
    )
    assert json.loads(bench_checked)["key"] == "https://e.org/1"


def provided(parts: Callable[[], tuple[Path, Path]]) -> tuple[Path, Path]:
    try:
        return parts()
    except EnginesUnavailable as problem:
        if REQUIRED:
            pytest.fail(str(problem), pytrace=False)
        pytest.skip(str(problem))


@pytest.fixture
def gs(bench: Bench, work: Path) -> Iterator[StoreBench]:
    """Commands that find a server of Google Cloud Storage's protocol, and the client for it."""
    binary, client = provided(gcs)
    port, root = free_port(), bench.root / "gcs"
    shutil.copytree(bench.root / "data", root / "logs/in")
    (root / "sketches").mkdir()
    server = Process(
        "fake-gcs-server",
        [str(binary), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory",
         "-data", str(root), "-public-host", f"127.0.0.1:{port}", "-external-url", f"http://127.0.0.1:{port}"],
        work / "gcs.log",
    )  # fmt: skip
    server.wait_for_port(port, 60)
    address = f"http://127.0.0.1:{port}"
    more = {
        "PYTHONPATH": str(client),
        "STORAGE_EMULATOR_HOST": address,  # Google's client for Python, which Beam uses
        "CLOUD_STORAGE_EMULATOR_ENDPOINT": address,  # Google's client for C++, which pyarrow uses
        "GOOGLE_CLOUD_PROJECT": "a-project",
        "NO_GCE_CHECK": "true",
    }
    yield StoreBench(bench.engines, bench.root, tuple(more.items()))
    server.stop()


def release_twice(bench: Bench, store: StoreBench, scheme: str, reader: str, options: list[str]) -> None:
    """Check, release with a ledger, verify, release without one, and look a key up: as on the local file system."""
    places = {
        "input.path": f"{scheme}://logs/in/*.parquet",
        "output.path": f"{scheme}://sketches/pages.sketch",
    }
    url = f"sqlite:///{bench.root}/{scheme}.db"
    store.run(store.command("ledger", "init", "--dataset", "views", "--epsilon", "9", "--ledger", url))
    tracked = {**places, "dataset": "views", "ledger": url}

    def release(settings: dict[str, str], *flags: str) -> str:
        sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        return store.run(store.command("release", "release.yaml", *sets, *flags, "--", *options))

    assert "4 files (parquet)" in release(tracked, "--check")
    finished = json.loads(release(tracked, "--log", "json").splitlines()[-1])
    assert finished["output"] == places["output.path"]
    assert "is verified, nothing to do" in release(
        tracked
    )  # fingerprints of the inputs, digest of the output

    untracked = {**places, "output.path": f"{scheme}://sketches/again.sketch"}
    release(untracked)
    name = f"beside-{scheme}"
    local = bench.release(name)
    answers = [
        store.run(store.command("query", where, "https://e.org/1", "--format", "json"))
        for where in (f"{reader}/again.sketch", str(bench.root / f"{name}.sketch"))
    ]
    assert answers[0] == answers[1]
    assert local == contents(bench.root / f"{name}.sketch")


def test_a_release_from_and_to_gs(bench: Bench, gs: StoreBench) -> None:
    release_twice(bench, gs, "gs", "gs://anonymous@sketches", ["--no_auth"])


def test_a_release_from_and_to_hdfs(bench: Bench, work: Path) -> None:
    """A NameNode and a DataNode; nothing but the sketches is left in the output's folder."""
    jars, client = provided(hdfs)
    (work / "hdfs").mkdir()
    cluster = Hdfs(jars, work / "hdfs")
    try:
        web = f"http://{cluster.address}/webhdfs/v1"
        user = "user.name=" + getpass.getuser()  # the superuser: whoever started the NameNode

        def put(path: str, operation: str, file: Path | None = None) -> None:
            upload = [] if file is None else ["-L", "-T", str(file)]
            subprocess.run(
                ["curl", "-sSf", "-X", "PUT", *upload, f"{web}{path}?op={operation}&{user}"],
                check=True,
                capture_output=True,
            )

        for folder in ("/logs/in", "/sketches"):
            put(folder, "MKDIRS")
            put(folder, "SETOWNER&owner=hushgram")
        for file in sorted((bench.root / "data").glob("*.parquet")):
            put(f"/logs/in/{file.name}", "CREATE", file)
        found = {"PYTHONPATH": str(client), "HADOOP_USER_NAME": "hushgram"}
        store = StoreBench(bench.engines, bench.root, tuple(found.items()))
        release_twice(bench, store, "hdfs", f"webhdfs://{cluster.address}/sketches", cluster.options)
        with urlopen(f"{web}/sketches?op=LISTSTATUS&{user}") as answer:
            left = json.load(answer)["FileStatuses"]["FileStatus"]
        assert sorted(entry["pathSuffix"] for entry in left) == ["again.sketch", "pages.sketch"]

        hidden = "/sketches/" + work_name(
            "pages.sketch", "", "0123-7-1-x"
        )  # of a run elsewhere that was killed
        put(hidden, "MKDIRS")
        put(hidden, "SETOWNER&owner=hushgram")
        put(f"{hidden}/bits-00000.bin", "CREATE", bench.root / "release.yaml")
        for action, more in (("remove", ()), ("removed", ("--remove",))):
            clean = ["clean", "hdfs://sketches", "--format", "json", "--older-than", "0", *more]
            listed = json.loads(store.run(store.command(*clean, "--", *cluster.options)))
            assert (listed["path"], listed["action"]) == (f"hdfs:/{hidden}", action)
        assert not store.run(store.command(*clean, "--", *cluster.options))
    finally:
        cluster.stop()
