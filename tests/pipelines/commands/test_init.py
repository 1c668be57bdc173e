"""`hushgram init`: the config that it writes is valid, runs, and holds nothing of the records."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from hushgram.errors import HushgramError
from hushgram.pipelines.cli import cli
from hushgram.pipelines.config.models import load_config
from hushgram.pipelines.jobs.release import ReleaseConfig
from hushgram.sketch.reader import Sketch

ROWS = [(f"person-{i}", f"thing-{i % 5}", i % 3) for i in range(60)]
LOG = b"".join(b'10.0.0.%d - - [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 5\n' % i for i in range(50))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)
    return tmp_path


def call(*words: str, answers: str | None = None) -> str:
    result = CliRunner().invoke(cli, ["init", *words], input=answers)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def lines(separator: str, *names: str) -> str:
    return "\n".join(separator.join(map(str, row)) for row in [names, *ROWS]) + "\n"


def table(path: str, *names: str) -> None:
    pq.write_table(pa.table(dict(zip(names, map(list, zip(*ROWS, strict=True)), strict=True))), path)


def load(path: str, date: str | None = None) -> ReleaseConfig:
    return load_config(path, (), ReleaseConfig, date)


def test_the_config_runs_without_an_edit(home: Path) -> None:
    Path("log.csv").write_text(lines(",", "user_id", "url", "n"))
    call("log.csv", "--yes")
    text = Path("url.yaml").read_text()
    assert "person-" not in text
    assert "thing-" not in text
    assert text.count("#") > 8
    for more in (["--check"], ["--quiet"]):
        assert CliRunner().invoke(cli, ["release", "url.yaml", *more]).exit_code == 0
    assert Sketch.open("out/url.sketch").guarantee.delta > 0


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_the_delimiter_is_found(separator: str) -> None:
    Path("sales.csv").write_text(lines(separator, "customerId", "product name", "n"))
    call("sales.csv", "--yes")
    config = load("product-name.yaml")
    assert (config.input.user, config.input.key) == ("customerId", "product name")
    assert config.input.csv.delimiter == separator  # type: ignore[attr-defined]


def test_formats_and_names() -> None:
    table("a.parquet", "visitor", "page", "n")
    Path("b.jsonl").write_text("".join(json.dumps({"member": u, "term": k}) + "\n" for u, k, _ in ROWS))
    Path("c.log.gz").write_bytes(gzip.compress(LOG))
    for file, user, key in (
        ("a.parquet", "visitor", "page"),
        ("b.jsonl", "member", "term"),
        ("c.log.gz", "ip", "path"),
    ):
        row: dict[str, Any] = json.loads(call(file, "--yes", "--format", "json"))
        assert (row["user"], row["key"]) == (user, key)
        assert load(row["config"]).input.user == user


def test_what_the_shell_expanded_is_a_pattern_again(home: Path) -> None:
    (home / "data").mkdir()
    for day in (15, 16):
        table(f"data/2026-11-{day}.parquet", "user", "url", "n")
    call("data/2026-11-15.parquet", "data/2026-11-16.parquet", "--yes")
    assert load("url.yaml").input.path == ("data/*.parquet",)
    call("data/2026-11-15.parquet", "--yes", "--every", "day", "--write", "daily.yaml")
    daily = load("daily.yaml", "2026-11-16")
    assert daily.input.path == ("data/2026-11-16.parquet",)
    assert (daily.release, daily.dataset) == ("url-2026-11-16", "url")


def test_four_questions() -> None:
    Path("log.csv").write_text(lines(",", "who", "what", "n"))
    told = call("log.csv", answers="nobody\nwho\n[what, n]\nn\nweek\n")
    assert [f"{number}. " in told for number in range(1, 5)] == [True] * 4
    assert "no column 'nobody'" in told  # asked again
    config = load("n.yaml", "2026-11-16")
    assert (config.input.user, config.input.key, config.privacy.delta) == ("who", "[what, n]", 0)


@pytest.mark.parametrize(
    ("file", "content", "options", "words"),
    [
        ("none.csv", None, (), "no such file"),
        ("a.csv", "", (), "has no columns"),
        ("a.txt", "free text\n" * 9, (), "is not Parquet, CSV, JSON lines or a log of a known server"),
        ("a.csv", "user,key\nu,k\n", ("--user", "usr"), "--user: no column 'usr'; did you mean 'user'?"),
        ("a.csv", "user,key\nu,k\n", ("--key", "kee"), "--key: no column 'kee'; did you mean 'key'?"),
        ("a.csv", "a,b\n1,2\n", (), "no column looks like that of a person"),
        ("a.csv", "user,key\n" + "u\n" * 9, (), "1 fields instead of 2"),
        ("gs://b/a.csv", None, (), "init looks at local files"),
    ],
)
def test_what_cannot_be_read_is_said_and_nothing_is_written(
    file: str, content: str | None, options: tuple[str, ...], words: str, home: Path
) -> None:
    if content is not None:
        Path(file).write_text(content)
    with pytest.raises(HushgramError) as caught:
        call(file, "--yes", *options)
    assert words in str(caught.value)
    assert not list(home.glob("*.yaml"))


def test_a_config_is_replaced_only_by_force() -> None:
    Path("a.csv").write_text("user,key\nu,k\n")
    Path("key.yaml").write_text("mine")
    with pytest.raises(HushgramError, match="already exists"):
        call("a.csv", "--yes")
    assert Path("key.yaml").read_text() == "mine"
    call("a.csv", "--yes", "--force")
    assert load("key.yaml").input.key == "key"
