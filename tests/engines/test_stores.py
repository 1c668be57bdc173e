"""configs/flink.yaml on Flink, from and to s3:// on a real server of its protocol."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pyarrow.parquet as pq
import pytest

from tests.engines.jobs import Bench
from tools.engines.processes import Process, free_port

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
