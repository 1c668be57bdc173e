"""A release from and to an object store, with the options of Beam, against a real server of its protocol."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import botocore.client
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from hushgram.errors import HushgramError, InputError
from hushgram.pipelines.cli import cli
from hushgram.pipelines.jobs.release import _carried_keys
from hushgram.sketch.reader import Sketch

CONFIG = """
release: urls
input: {{path: "{0}/in/*.parquet", user: user, key: url}}
privacy: {{epsilon: 1, max_contributions: 4}}
output: {{path: "{0}/out/urls.sketch"}}
"""


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Start a server of the S3 protocol on the loopback interface; return its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = shutil.which("moto_server", path=str(Path(sys.executable).parent))
    assert command is not None
    server = subprocess.Popen(
        [command, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def client(store: str):
    return boto3.client(
        "s3",
        endpoint_url=store,
        aws_access_key_id="id",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.long
def test_a_release_from_s3_to_s3_is_the_local_one(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(1)
    users, urls = rng.integers(0, 300, 5000), rng.zipf(1.5, 5000) % 50
    for part in range(2):
        rows = slice(part * 2500, part * 2500 + 2500)
        table = pa.table({"user": users[rows], "url": [f"/{url}" for url in urls[rows]]})
        pq.write_table(table, tmp_path / f"in/{part}.parquet")
    key = tmp_path / "key"
    key.write_text("07" * 32)
    key.chmod(0o600)
    monkeypatch.setenv("HUSHGRAM_RELEASE_KEY_FILE", str(key))
    s3 = client(store)
    s3.create_bucket(Bucket="logs")
    for part in range(2):
        s3.upload_file(str(tmp_path / f"in/{part}.parquet"), "logs", f"in/{part}.parquet")
    options = ["--", f"--s3_endpoint_url={store}", "--s3_access_key_id=id", "--s3_secret_access_key=secret",
               "--s3_region_name=us-east-1"]  # fmt: skip
    for name, place in (("local.yaml", tmp_path), ("remote.yaml", "s3://logs")):
        (tmp_path / name).write_text(CONFIG.format(place))

    run("release", str(tmp_path / "local.yaml"))
    assert "2 files (parquet)" in run("release", str(tmp_path / "remote.yaml"), "--check", *options)
    run("release", str(tmp_path / "remote.yaml"), *options)

    listed = s3.list_objects_v2(Bucket="logs", Prefix="out/")["Contents"]
    remote = {
        item["Key"].removeprefix("out/urls.sketch/"): s3.get_object(Bucket="logs", Key=item["Key"])[
            "Body"
        ].read()
        for item in listed
    }
    local = {file.name: file.read_bytes() for file in (tmp_path / "out/urls.sketch").iterdir()}
    assert remote == local

    environment = {"AWS_ENDPOINT_URL": store, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret",
                   "AWS_REGION": "us-east-1"}  # fmt: skip
    looked_up = subprocess.run(
        [sys.executable, "-m", "hushgram", "query", "s3://logs/out/urls.sketch", "/1", "--format", "json"],
        env=os.environ | environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    answer = json.loads(looked_up.stdout)
    local_answer = Sketch.open(tmp_path / "out/urls.sketch").estimate(["/1"]).to_pylist()[0]
    assert (answer["low"], answer["high"]) == (local_answer["low"], local_answer["high"])
    missing = subprocess.run(
        [sys.executable, "-m", "hushgram", "query", "s3://logs/out/other.sketch", "/1"],
        env=os.environ | environment, capture_output=True, text=True,
    )  # fmt: skip
    assert missing.returncode != 0
    assert missing.stderr == "error: s3://logs/out/other.sketch: there is no such sketch\n"


@pytest.mark.long
def test_a_tracked_start_makes_few_requests(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are compared by what one listing says: no request per file beyond those that read it."""
    monkeypatch.chdir(tmp_path)
    s3, parts = client(store), 3
    s3.create_bucket(Bucket="views")
    pq.write_table(pa.table({"user": range(300), "url": ["/a"] * 300}), tmp_path / "a.parquet")
    for part in range(parts):
        s3.upload_file(str(tmp_path / "a.parquet"), "views", f"in/{part}.parquet")
    (tmp_path / "c.yaml").write_text(CONFIG.format("s3://views") + "dataset: d\nledger: sqlite:///l.db\n")
    run("ledger", "init", "--dataset", "d", "--epsilon", "1", "--ledger", "sqlite:///l.db")
    options = [f"--s3_endpoint_url={store}", "--s3_access_key_id=id", "--s3_secret_access_key=secret",
               "--s3_region_name=us-east-1"]  # fmt: skip
    made: list[tuple[str, str]] = []
    call = botocore.client.BaseClient._make_api_call

    def counted(self, operation, arguments):
        made.append((operation, arguments.get("Key", "")))
        return call(self, operation, arguments)

    def stop(*_: object, **__: object) -> None:
        raise HushgramError("the start is over")

    with monkeypatch.context() as patched:
        patched.setattr(botocore.client.BaseClient, "_make_api_call", counted)
        patched.setattr("hushgram.pipelines.run.job_runner.run_stages", stop)
        with pytest.raises(HushgramError, match="the start is over"):
            cli.main(["release", "c.yaml", "--", *options], standalone_mode=False)
    of_files = [operation for operation, key in made if key.startswith("in/")]
    assert len(of_files) == 5 * parts, of_files  # footer, and the first block: each opened and read
    assert [operation for operation, _ in made].count("ListObjectsV2") <= 3  # input, leftovers, end

    run("release", "c.yaml", "--", *options)
    run("release", "c.yaml", "--", *options)  # verified
    time.sleep(1.1)  # the listing tells whole seconds
    s3.upload_file(str(tmp_path / "a.parquet"), "views", "in/0.parquet")
    changed = CliRunner().invoke(cli, ["release", "c.yaml", "--", *options])
    assert "input s3://views/in/0.parquet has changed" in str(changed.exception or changed.output)


def test_carried_keys_are_read_from_a_store(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ENDPOINT_URL": store, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret",
                        "AWS_REGION": "us-east-1"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    s3 = client(store)
    s3.create_bucket(Bucket="kept")
    sketch = Path(__file__).parents[1] / "golden/sketches/text.sketch"
    for file in sketch.iterdir():
        s3.upload_file(str(file), "kept", f"day/text.sketch/{file.name}")
    s3.put_object(Bucket="kept", Key="keys.txt", Body=b"/a\n/b\n")
    named = list(Sketch.open(sketch).named_keys())
    assert named
    assert _carried_keys("s3://kept/day/text.sketch") == named == _carried_keys(str(sketch))
    assert _carried_keys("s3://kept/keys.txt") == [b"/a", b"/b"]
    assert _carried_keys("s3://kept/day/first.sketch") is None
    with pytest.raises(InputError, match="carry: nfs://kept/a cannot be read"):
        _carried_keys("nfs://kept/a")
