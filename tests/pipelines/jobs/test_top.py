"""`hushgram top`: the chosen keys, checks, and mistakes."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import hushgram as hg
from hushgram.errors import HushgramError
from hushgram.pipelines.commands.job import job_command

CONFIG = """\
top: pages
input: {path: in/*.parquet, user: user_id, key: url}
keys: pages.txt
count: 3
privacy: {epsilon: 3, max_contributions: 4}
output: {path: out/top.jsonl}
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text("07" * 32)
    monkeypatch.setenv("HUSHGRAM_RELEASE_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)
    (tmp_path / "in").mkdir()
    (tmp_path / "top.yaml").write_text(CONFIG)
    (tmp_path / "pages.txt").write_text("".join(f"/{i}\n" for i in range(10)))
    pages = np.repeat(np.arange(10), np.arange(10) * 100)
    table = pa.table({"user_id": [f"u{i}" for i in range(len(pages))], "url": [f"/{p}" for p in pages]})
    pq.write_table(table, tmp_path / "in/a.parquet")
    return tmp_path


def call(*arguments):
    result = CliRunner().invoke(job_command("top"), list(arguments), catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, HushgramError | SystemExit):
        raise result.exception
    return result


def test_the_most_frequent_keys_without_counts(home):
    result = call("top.yaml")
    assert result.exit_code == 0, result.exception
    lines = [json.loads(line) for line in (home / "out/top.jsonl").read_text().splitlines()]
    assert [line["key"] for line in lines[1:]] == ["/9", "/8", "/7"]
    assert all(set(line) == {"rank", "key"} for line in lines[1:])
    assert "3-differentially private for one user" in lines[0]["guarantee"]
    assert "rank  key\n   1  /9\n   2  /8\n" in result.output
    assert "4,500 of 4,500 records (100.0%) after bounding" in " ".join(result.output.split())
    again = call("top.yaml", "--quiet", "--set", "output.path=out/again.jsonl", "--set", "shards=2")
    assert again.exit_code == 0
    assert (home / "out/again.jsonl").read_bytes() == (home / "out/top.jsonl").read_bytes()


@pytest.mark.parametrize("style", ["json", "csv", "parquet"])
def test_rows_for_programs(home, style):
    result = call("top.yaml", "--format", style, "-o", "rows")
    assert result.exit_code == 0, result.exception
    content = (home / "rows").read_bytes()
    if style == "json":
        rows = [json.loads(line) for line in content.splitlines()]
    elif style == "csv":
        rows = pyarrow.csv.read_csv(home / "rows").to_pylist()
    else:
        rows = pq.read_table(home / "rows").to_pylist()
    assert rows == [{"rank": 1, "key": "/9"}, {"rank": 2, "key": "/8"}, {"rank": 3, "key": "/7"}]


def test_check_spends_nothing(home):
    result = call("top.yaml", "--check")
    assert "3 of 10 keys by permute and flip, epsilon 1 per choice" in result.output
    assert not (home / "out").exists()


@pytest.mark.parametrize(
    ("settings", "mechanism"),
    [
        (["mechanism=exponential"], "exponential"),
        (["mechanism=noisy_max"], "noisy_max"),
        (["privacy.delta=1e-6"], "exponential"),
        (["privacy.delta=1e-6", "mechanism=permute_and_flip"], "permute_and_flip"),
        (["privacy.delta=1e-6", "mechanism=noisy_max"], "noisy_max"),
    ],
)
def test_every_mechanism_chooses_and_says_what_it_costs(home, settings, mechanism):
    options = [part for setting in settings for part in ("--set", setting)]
    result = call("top.yaml", "--set", "privacy.epsilon=9", *options)
    assert result.exit_code == 0, result.exception
    lines = [json.loads(line) for line in (home / "out/top.jsonl").read_text().splitlines()]
    assert lines[0]["mechanism"] == mechanism
    assert [line["key"] for line in lines[1:]] == ["/9", "/8", "/7"]
    said = "(9, 0.000001)-differentially" if "privacy.delta=1e-6" in settings else "9-differentially"
    assert said in lines[0]["guarantee"]


def test_candidates_from_a_sketch(home):
    names, counts = [f"/{i}" for i in range(10)], [500 * i for i in range(10)]
    for delta in ("0", "1e-6"):
        params = hg.ReleaseParams(epsilon=5, delta=delta, max_contributions=1)
        sketch = hg.release_histogram(names, counts, params, home / f"s{delta}")
        heavy = sketch.heavy()
        result = call(
            "top.yaml", "--set", "keys=null", "--set", f"sketch=s{delta}", "--set", f"output.path=o{delta}"
        )
        assert result.exit_code == 0, result.exception
        lines = [json.loads(line) for line in (home / f"o{delta}").read_text().splitlines()]
        assert lines[0]["keys"] == heavy.num_rows
        if delta != "0":
            assert [line["key"] for line in lines[1:]] == ["/9", "/8", "/7"]
        else:  # keys of a pure release are known by their fingerprints alone
            assert all(line["key"].startswith("#") for line in lines[1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("count=11", "count must be at most the 10 keys"),
        ("keys=none.txt", "none.txt"),
        ("keys=null", "or sketch is needed"),
        ("sketch=here", "or sketch is needed"),
        ("mechanism=best", "mechanism"),
        ("privacy.epsilon=-1", "must be above 0"),
    ],
)
def test_mistakes_are_one_line(home, change, message):
    result = call("top.yaml", "--set", change)
    assert isinstance(result.exception, HushgramError), result.exception
    assert message in str(result.exception)


def test_empty_and_repeating_lists(home):
    (home / "pages.txt").write_text("\n")
    assert "has no keys" in str(call("top.yaml").exception)
    (home / "pages.txt").write_text("/1\n/2\n/1\n/3\n")
    assert "lists '/1' twice" in str(call("top.yaml").exception)


def test_logs_and_metrics(home):
    result = call("top.yaml", "--log", "json", "--metrics", "m.prom")
    assert result.exit_code == 0, result.exception
    events = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    assert events[-1]["event"] == "finished"
    assert events[-1]["job"] == "top"
    assert "hushgram_" in (home / "m.prom").read_text()
