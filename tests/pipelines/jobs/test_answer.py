"""`hushgram answer`: every kind of domain, retries, the saved hypothesis, and one line for each mistake."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from hushgram.errors import HushgramError
from hushgram.pipelines.commands.answer import command

CONFIG = """\
answer: sums
input: {path: in/*.parquet, user: user_id, key: url}
domain: {keys: pages.txt}
queries:
  - {id: home, keys: ["/0"]}
  - {id: docs, prefix: "/1"}
  - {id: half, weights: {"/0": 0.5, "/1": 0.5}}
  - {id: all, all: true}
pmw: {max_updates: 10}
privacy: {epsilon: 50, max_contributions: 4}
output: {path: out/answers}
"""
RNG = np.random.default_rng(0)
PAGES = RNG.zipf(1.5, 20_000) % 30


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text("07" * 32)
    monkeypatch.setenv("HUSHGRAM_RELEASE_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)
    (tmp_path / "in").mkdir()
    (tmp_path / "answer.yaml").write_text(CONFIG)
    (tmp_path / "pages.txt").write_text("".join(f"/{i}\n" for i in range(25)))
    table = pa.table(
        {"user_id": [f"u{i}" for i in range(20_000)], "url": [f"/{p}" for p in PAGES], "age": PAGES}
    )
    pq.write_table(table, tmp_path / "in/a.parquet")
    return tmp_path


def call(*arguments):
    result = CliRunner().invoke(command, list(arguments), catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, HushgramError | SystemExit):
        raise result.exception
    return result


def answers(path):
    lines = [json.loads(line) for line in (path / "answers.jsonl").read_text().splitlines()]
    return {line["id"]: line for line in lines}


def exact(wanted):
    return int(np.isin(PAGES, list(wanted)).sum())


def test_answers_are_near_the_truth_and_the_hypothesis_can_be_asked_again(home):
    result = call("answer.yaml", "--quiet")
    assert result.exit_code == 0, result.exception
    told = answers(home / "out/answers")
    assert abs(told["home"]["answer"] - exact({0})) < 60
    assert abs(told["docs"]["answer"] - exact({1, *range(10, 20)})) < 100
    assert abs(told["all"]["answer"] - exact(range(25))) < 100
    assert told["home"]["from"] in ("measured", "hypothesis")
    manifest = json.loads((home / "out/answers/manifest.json").read_text())
    assert manifest["guarantee"]["epsilon"] == "50"
    assert "one user added or removed" in manifest["guarantee"]["words"]
    assert manifest["updates"] <= 10
    again = call("out/answers", "--key", "/0", "--key", "/1", "--format", "json")
    asked, other = map(json.loads, again.output.splitlines())
    assert (asked["id"], asked["answer"], asked["from"]) == (
        "/0",
        *(told["home"][name] for name in ("answer", "from")),
    )
    assert asked["low"] <= exact({0}) <= asked["high"]
    assert (other["id"], other["low"], other["high"], other["from"]) == ("/1", None, None, "hypothesis alone")
    (home / "more.jsonl").write_text('{"id": "x", "keys": ["/0"]}\n{"cells": [0, 1, 2]}\n')
    asked = call("out/answers", "--queries", "more.jsonl", "--format", "csv").output
    assert asked.splitlines()[0] == '"id","answer","low","high","from"'
    assert len(asked.splitlines()) == 3
    assert len(call("out/answers").output.splitlines()) == 26  # the synthetic histogram itself


def test_ranges_of_a_number_count_records_not_distinct_numbers(home):
    """5,000 users with nine records of 1 and one of 10, of which one counts: 4,500 and 500 on average."""
    users = np.repeat([f"u{i}" for i in range(5000)], 10)
    pq.write_table(pa.table({"user_id": users, "age": np.tile([1] * 9 + [10], 5000)}), home / "in/a.parquet")
    asked = "queries=[{id: low, between: [0, 5]}, {id: high, between: [5, 30]}]"
    changes = ["domain={edges: [0, 5, 30]}", "input.key=age", asked, "privacy.max_contributions=1"]
    result = call("answer.yaml", "--quiet", *(part for text in changes for part in ("--set", text)))
    assert result.exit_code == 0, result.exception
    told = answers(home / "out/answers")
    assert abs(told["low"]["answer"] - 4500) < 120
    assert abs(told["high"]["answer"] - 500) < 120


def test_check_spends_nothing(home):
    result = call("answer.yaml", "--check")
    assert result.exit_code == 0, result.exception
    words = " ".join(result.output.split())
    assert "50-differentially private for one user added or removed" in words
    assert "4 queries over 25 cells, at most 10 updates" in words
    assert "a Laplace histogram of the 25 cells would answer all of them within about" in words
    assert not (home / "out").exists()


def test_reruns_are_byte_equal(home):
    call("answer.yaml", "--quiet")
    call("answer.yaml", "--quiet", "--set", "output.path=out/again", "--set", "shards=3")
    first, second = (
        {p.name: p.read_bytes() for p in (home / "out" / n).iterdir()} for n in ("answers", "again")
    )
    assert first == second


def test_ranges_of_a_numeric_key(home):
    extra = ["domain={edges: [0, 5, 10, 30]}", "input.key=age", "queries=[{id: y, between: [0, 5]}]"]
    extra += ["pmw.max_updates=4"]
    result = call("answer.yaml", "--quiet", *(word for change in extra for word in ("--set", change)))
    assert result.exit_code == 0, result.exception
    assert abs(answers(home / "out/answers")["y"]["answer"] - exact(range(5))) < 60
    refused = call("out/answers", "--key", "3\udcff").exception
    assert str(refused) == r"--key must be UTF-8 text, got '3\udcff'"


def test_hash_buckets_without_users(home):
    extra = [
        "domain={buckets: 8}",
        "input.user=null",
        "privacy.max_contributions=null",
        "queries=[{all: true}]",
    ]
    result = call("answer.yaml", "--quiet", *(word for change in extra for word in ("--set", change)))
    assert result.exit_code == 0, result.exception
    assert abs(answers(home / "out/answers")["0"]["answer"] - 20_000) < 60
    assert "one record" in (home / "out/answers/manifest.json").read_text()


def test_a_sketch_is_domain_and_prior(home):
    import hushgram as hg

    params = hg.ReleaseParams(epsilon=10, max_contributions=1)
    users, keys = [f"u{i}" for i in range(20_000)], [f"/{p}" for p in PAGES]
    hg.release(users, keys, params, path=home / "urls.sketch", release_key=hg.ReleaseKey(bytes(32)))
    queries = '{"id": "zero", "keys": ["/0"]}\n{"id": "all", "all": true}\n'
    (home / "q.jsonl").write_text(queries)
    changes = ["domain={sketch: urls.sketch}", "queries={path: q.jsonl}"]
    result = call("answer.yaml", *(word for change in changes for word in ("--set", change)))
    assert result.exit_code == 0, result.exception
    assert abs(answers(home / "out/answers")["zero"]["answer"] - exact({0})) < 1000
    again = call("out/answers", "--key", "/0", "--format", "json")
    assert abs(json.loads(again.output)["answer"] - exact({0})) < 1000
    result = call("answer.yaml", "--check", "--set", "pmw.prior=urls.sketch", "--set", "output.path=out/b")
    assert "a released sketch" in result.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("domain={}", "exactly one of keys, sketch, buckets, edges"),
        ("domain={keys: none.txt}", "domain.keys none.txt"),
        ("domain={edges: [3, 1]}", "rising numbers"),
        ("domain={sketch: none.sketch}", "none.sketch"),
        ('queries=[{keys: ["/99"]}]', "query 0: key '/99' is not among the 25 keys of the domain"),
        ('queries=[{weights: {"/1": 1.5}}]', "weights must be from 0 to 1, got 1.5"),
        ("queries=[{what: 1}]", "no kind of query 'what'"),
        ("queries=[{id: a}]", "exactly one of keys"),
        ("queries=[{between: [0, 5]}]", "between needs a domain of ranges"),
        ("queries=[]", "holds no query"),
        ("queries={path: none.jsonl}", "none.jsonl"),
        ("pmw.alpha=0.1", "alpha needs a public number of records|exclude each other"),
        ("pmw={alpha: 0.1, total: 1000}", "needs total >= "),
        ("pmw.max_updates=0", "greater than or equal to 1|must be"),
        ("privacy.epsilon=0", "must be above 0"),
        ("input.key=nothing", "no column 'nothing'"),
    ],
)
def test_mistakes_are_one_line(home, change, message):
    import re

    result = call("answer.yaml", "--set", change)
    assert isinstance(result.exception, HushgramError), result.exception
    assert re.search(message, str(result.exception)), result.exception
    assert "\n" not in str(result.exception)
    assert not (home / "out/answers").exists()


def test_torn_directories_are_refused(home):
    call("answer.yaml", "--quiet")
    path = home / "out/answers/hypothesis.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    assert "differs from what the manifest states" in str(call("out/answers", "--key", "/0").exception)
    (home / "empty").mkdir()
    assert "no manifest.json" in str(call("empty", "--key", "/0").exception)


def test_one_result_on_any_number_of_workers_and_a_second_run_is_refused(home):
    call("answer.yaml", "--quiet")
    result = call("answer.yaml", "--quiet")
    assert "exists" in str(result.exception)


def test_the_ledger_charges_answers_and_refuses_what_does_not_fit(home, monkeypatch):
    from hushgram.pipelines.cli import cli

    url = "sqlite:///ledger.db"
    started = CliRunner().invoke(
        cli, ["ledger", "init", "--dataset", "views", "--epsilon", "60", "--ledger", url]
    )
    assert started.exit_code == 0, started.output
    monkeypatch.delenv("HUSHGRAM_RELEASE_KEY_FILE")
    tracked = ["--set", "dataset=views", "--set", f"ledger={url}"]
    result = call("answer.yaml", *tracked)
    assert result.exit_code == 0, result.exception
    again = call("answer.yaml", *tracked)  # the same run: nothing new is drawn or charged
    assert again.exit_code == 0, again.exception
    other = call("answer.yaml", *tracked, "--set", "answer=more", "--set", "output.path=out/more")
    assert other.exception.exit_code == 5
    assert not (home / "out/more").exists()
    shown = CliRunner().invoke(cli, ["ledger", "history", "views", "--ledger", url]).output
    assert "sums" in shown


def test_offline_answers_all_queries_from_one_hypothesis(home):
    result = call("answer.yaml", "--set", "pmw={mode: offline, rounds: 4}")
    assert result.exit_code == 0, result.exception
    told = answers(home / "out/answers")
    assert abs(told["home"]["answer"] - exact({0})) < 60
    assert abs(told["all"]["answer"] - exact(range(25))) < 60
    manifest = json.loads((home / "out/answers/manifest.json").read_text())
    assert manifest["parameters"]["mode"] == "offline"
    assert manifest["parameters"]["choice"]["mechanism"] == "permute_and_flip"
    assert "50-differentially private" in manifest["guarantee"]["words"]
    again = call("answer.yaml", "--set", "pmw={mode: offline, rounds: 4}", "--set", "output.path=out/again")
    assert again.exit_code == 0
    for name in ("answers.jsonl", "hypothesis.parquet"):
        assert (home / "out/again" / name).read_bytes() == (home / "out/answers" / name).read_bytes()


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_check_says_which_way_is_expected_to_be_best(home, mode):
    result = call("answer.yaml", "--check", "--set", f"pmw={{mode: {mode}}}")
    assert result.exit_code == 0, result.exception
    said = " ".join(result.output.split())
    assert "on synthetic counts of 1,000,000 records: online" in said
    assert "best: laplace" in said  # four queries
    assert not (home / "out").exists()


@pytest.mark.parametrize(
    ("pmw", "message"),
    [
        ("{mode: offline, max_updates: 5}", "pmw.max_updates has no meaning in mode offline"),
        ("{mode: offline, alpha: 0.1}", "pmw.alpha has no meaning in mode offline"),
        ("{rounds: 5}", "pmw.rounds has no meaning in mode online"),
        ("{mode: offline, rounds: 5000}", "pmw.rounds"),
        ("{mode: both}", "pmw.mode"),
    ],
)
def test_options_of_the_other_mode_are_refused(home, pmw, message):
    result = call("answer.yaml", "--set", f"pmw={pmw}")
    assert isinstance(result.exception, HushgramError), result.exception
    assert message in str(result.exception)


def test_more_queries_than_fit_are_refused_before_anything_is_spent(home):
    (home / "many.jsonl").write_text("".join(f'{{"id": {i}, "all": true}}\n' for i in range(300)))
    changes = ("pmw={mode: offline}", "queries={path: many.jsonl}", "domain={buckets: 1048576}")
    result = call("answer.yaml", "--check", *(part for change in changes for part in ("--set", change)))
    assert isinstance(result.exception, HushgramError), result.exception
    assert "too many to be held at once" in str(result.exception)
