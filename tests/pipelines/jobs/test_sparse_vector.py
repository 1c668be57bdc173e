"""``hushgram sparse-vector`` from config to answers: exact counts, ledger, header, retries, and mistakes."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.errors import HushgramError
from hushgram.mechanisms.svt.exact_answers import pack_records, unpack_records
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.cli import cli
from hushgram.pipelines.config.models import load_config
from hushgram.pipelines.jobs.sparse_vector import SparseVectorConfig, SparseVectorJob
from hushgram.pipelines.run.job_runner import load_job, run_stages

KEY = ReleaseKey(bytes(range(32)))
CONFIG = """
sparse_vector: alerts
input: {path: data/*.parquet, user: user_id, key: url}
stream: {path: queries.jsonl}
svt: {mechanism: sparse, method: sparse-vector, threshold: 200, cutoff: 20, answers: gap}
privacy: {epsilon: 1000, delta: 0, max_contributions: 4}
output: {path: out/answers.jsonl}
"""
QUERIES = [
    {"id": "home", "key": "https://a/0"},
    {"id": "none", "key": "https://nowhere/"},
    {"id": "site", "prefix": "https://a/"},
    {"id": "adults", "column": "age", "between": [30, 49]},
    {"id": "lost", "where": "status = 404 and age >= 50"},
]


@pytest.fixture
def job_dir(tmp_path, monkeypatch):
    rng = np.random.default_rng(7)
    rows = 6000
    site = rng.integers(0, 2, rows)
    page = rng.zipf(1.5, rows) % 30
    table = pa.table(
        {
            "user_id": rng.integers(0, 800, rows),
            "url": [f"https://{'ab'[s]}/{p}" for s, p in zip(site, page, strict=True)],
            "age": pa.array(rng.integers(10, 90, rows)),
            "status": pa.array(rng.choice([200, 404], rows)),
            "time": pa.array(rng.integers(0, 10**15, rows), pa.timestamp("us", tz="UTC")),
        }
    )
    (tmp_path / "data").mkdir()
    pq.write_table(table.slice(0, 2500), tmp_path / "data" / "a.parquet")
    pq.write_table(table.slice(2500), tmp_path / "data" / "b.parquet")
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in QUERIES))
    (tmp_path / "alerts.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(*overrides):
    return load_job("sparse-vector", "alerts.yaml", overrides)


def read(path):
    header, *rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return header, rows


def expected_answers(job):
    """The same queries over the same bounded records, without Beam and without the plan."""
    tables = [pq.read_table(path) for path in sorted(Path("data").iterdir())]
    table = pa.concat_tables(tables)
    by_key = Contributions.of(table["user_id"], table["url"], KEY, texts=True).bounded(Bounds(4, 1))
    packed = pack_records(table, job.plan.record_schema)
    records = Contributions.of(table["user_id"], packed, KEY, texts=True).bounded(Bounds.of_records(4))
    rows = unpack_records(records.texts, job.plan.record_schema).to_pylist()
    keys = dict(
        zip([text.decode() for text in by_key.texts.to_pylist()], by_key.counts.tolist(), strict=True)
    )
    counted = list(zip(rows, records.counts.tolist(), strict=True))
    return [
        keys.get("https://a/0", 0),
        0,
        sum(count for key, count in keys.items() if key.startswith("https://a/")),
        sum(count for row, count in counted if 30 <= row["age"] <= 49),
        sum(count for row, count in counted if row["status"] == 404 and row["age"] >= 50),
    ]


def test_answers_are_those_of_bounded_contributions(job_dir):
    """At ε = 1000 the gaps show the exact answers within a few units."""
    job = load("svt.threshold=-100000")
    assert job.streams[0].params.sensitivity == 4
    result = run_stages(job, path="answers.jsonl", release_key=KEY)
    assert not list(job.exact_lines(result.exact))  # bounded by key and by record: no one share
    header, rows = read("answers.jsonl")
    found = [row["gap"] - 100_000 for row in rows]
    assert len(found) == 5
    assert max(abs(a - b) for a, b in zip(found, expected_answers(job), strict=True)) <= 4
    assert header["guarantee"]["epsilon"] == "1000"


def test_every_record_of_a_user_has_the_same_chance(job_dir):
    """4,000 users with nine records of one kind and one of another, of which one counts; repeats count as often as they
    are there. By distinct records it would be 2,000 of each."""
    users = np.repeat(np.arange(4000), 10)
    columns = {"url": ["https://a/0"] * 40_000, "age": [35] * 40_000, "status": [200] * 9 + [404]}
    columns["status"] *= 4000
    pq.write_table(pa.table({"user_id": users, **columns}), "data/a.parquet")
    pq.write_table(
        pa.table({"user_id": users[:0], **{k: v[:0] for k, v in columns.items()}}), "data/b.parquet"
    )
    Path("queries.jsonl").write_text(
        '{"id": "usual", "where": "status = 200"}\n{"id": "lost", "where": "status = 404"}\n'
        '{"id": "home", "key": "https://a/0"}\n'
    )
    for most in (1, 5):
        run_stages(
            load("svt.threshold=-100000", f"privacy.max_contributions={most}"),
            path=f"{most}.jsonl",
            release_key=KEY,
        )
        usual, lost, home = (row["gap"] - 100_000 for row in read(f"{most}.jsonl")[1])
        assert abs(usual - 3600 * most) < 100
        assert abs(lost - 400 * most) < 100
        assert abs(home - 4000) < 30


@pytest.mark.parametrize("method", ["sparse-vector", "histogram"])
def test_the_same_key_gives_the_same_bytes(job_dir, method):
    asked = ["privacy.epsilon=1", "svt.answers=numeric", "svt.threshold=300", f"svt.method={method}"]
    job = load(*asked)
    run_stages(job, path="one.jsonl", release_key=KEY)
    again = load(*asked, "shards=3")
    run_stages(again, path="two.jsonl", release_key=KEY)
    assert Path("one.jsonl").read_bytes() == Path("two.jsonl").read_bytes()


def test_histogram_form_gives_every_query_a_value(job_dir):
    """h = 2 for keys (a key within a prefix) and 2 for records (a range and a condition): L1 = 4·(2 + 2)."""
    job = load("svt.method=histogram", "svt.cutoff=null")
    moved = job.streams[0].params.sensitivity
    assert (moved.l1, moved.max_per_key, moved.l2_squared) == (16, 4, 4 + 3 * 16)
    run_stages(job, path="answers.jsonl", release_key=KEY)
    header, rows = read("answers.jsonl")
    found, exact = [row["value"] for row in rows], expected_answers(job)
    assert max(abs(a - b) for a, b in zip(found, exact, strict=True)) <= 2
    assert [row["above"] for row in rows] == [value >= 200 for value in found]
    (stream,) = header["streams"]
    assert stream["mechanism"] == "histogram"
    assert stream["noise"] == {"form": "histogram", "law": "laplace", "scale": "0.016"}
    assert stream["sensitivity"] == {"l1": 16, "l_infinity": 4, "l2_squared": 52}
    (event,) = job.events()
    assert (event.kind, event.epsilon, event.delta) == ("laplace", 1000, 0)


@pytest.mark.parametrize(
    ("overrides", "method"),
    [
        ([], "histogram"),  # 16 against the noise of 20 answers of sensitivity 4
        (["svt.cutoff=1"], "sparse"),
        (["svt.cutoff=null", "svt.mechanism=above_threshold"], "above_threshold"),
        (["svt.variant=dwork-roth"], "sparse"),
        (["privacy.delta=1e-6"], "histogram"),
        (["stream=[{key: a}]", "privacy.max_contributions=100", "svt.cutoff=3"], "histogram"),
        (["stream=[{key: a}, {key: b}, {key: c}, {key: d}]", "svt.cutoff=2"], "sparse"),
        (["stream=[{where: status = 200}, {where: status = 404}]", "svt.cutoff=2"], "histogram"),
        (["stream=[{where: status = 200}, {where: age > 4}, {prefix: h}]", "svt.cutoff=2"], "sparse"),
    ],
)
def test_auto_takes_the_method_with_less_noise_and_says_why(job_dir, overrides, method):
    job = load("svt.method=auto", "privacy.epsilon=1", *overrides)
    expected = "above_threshold" if method == "sparse" and "svt.cutoff=1" in overrides else method
    assert job.streams[0].mechanism == expected
    said = " ".join(text for _, text in job.check_lines())
    assert f"method: {'histogram' if method == 'histogram' else 'sparse-vector'}" in said
    assert "because: " in said


def test_overlap_in_the_types_of_the_input_is_checked(job_dir):
    """As numbers the ranges are apart; in single precision they meet."""
    pq.write_table(
        pa.table({"user_id": [1], "url": ["a"], "age": pa.array([1.0], pa.float32())}), "data/a.parquet"
    )
    Path("data/b.parquet").unlink()
    ranges = "stream=[{column: age, between: [0, 0.1]}, {column: age, between: [0.10000000001, 1]}]"
    assert load("svt.method=histogram", ranges).streams[0].params.sensitivity.l1 == 4
    result = command("--set", "svt.method=histogram", "--set", ranges)
    assert "set svt.method to sparse-vector" in str(result.exception)
    assert not Path("out").exists()


@pytest.mark.parametrize("method", ["auto", "sparse-vector", "histogram"])
def test_ranges_of_time_are_in_the_order_of_their_instants(job_dir, method):
    """A reversed one was answered with minus a count: whatever the method, it stops before anything is charged."""
    asked = ["--set", f"svt.method={method}"]
    rising = "stream=[{column: time, between: [1970-01-02T12:00:00+12:00, 1970-01-02T12:00:00Z]}]"
    assert command("--check", *asked, "--set", rising).exit_code == 0
    other = "{column: time, between: [1970-01-01T00:00:00Z, 1970-02-01T00:00:00Z]}"
    for low, high in (
        ("1970-01-02T00:00:00Z", "1970-01-02T01:00:00+12:00"),
        ("1970-01-02 01:00:00Z", "1970-01-02T00:00:00Z"),
    ):
        one = f"{{column: time, between: [{low}, {high}]}}"
        for stream in (f"stream=[{one}]", f"stream=[{other}, {one}]"):
            result = command(*asked, "--set", stream)
            assert isinstance(result.exception, HushgramError)
            assert f"must begin with the smaller value, got '{low}' above '{high}'" in str(result.exception)
    assert not Path("out").exists()


def test_a_range_beyond_the_numbers_of_its_column_counts_nothing(job_dir):
    ranges = f"stream=[{{column: age, between: [{2**63}, {2**65}]}}, {{column: age, between: [0, {2**65}]}}]"
    done = command("--quiet", "--set", "svt.method=histogram", "--set", ranges)
    assert done.exit_code == 0, done.output
    _, (beyond, all_) = read("out/answers.jsonl")
    assert abs(beyond["value"]) <= 2
    assert all_["value"] > 1000


def test_header_states_guarantee_mechanism_and_accuracy(job_dir):
    job = load("privacy.epsilon=1", "svt.cutoff=2", "svt.beta=0.1", "svt.threshold=-5000")
    run_stages(job, path="answers.jsonl", release_key=KEY)
    header, rows = read("answers.jsonl")
    (stream,) = header["streams"]
    assert header["guarantee"] | {"words": ""} == {
        "epsilon": "1",
        "delta": "0",
        "unit": "user",
        "max_contributions": 4,
        "max_per_key": 1,
        "words": "",
    }
    assert (stream["mechanism"], stream["sensitivity"], stream["monotone"]) == ("sparse", 4, True)
    assert stream["accuracy"]["beta"] == "0.1"
    assert 0 < stream["accuracy"]["alpha"] < stream["accuracy"]["alpha_of_theorem"]
    assert [row["above"] for row in rows[:2]] == [True, True]
    assert rows[2] == {"stream": "alerts", "halted": True, "after": "none", "unanswered": 3}


def test_several_streams_compose_to_the_whole(job_dir):
    Path("alerts.yaml").write_text(
        CONFIG.replace(
            "stream: {path: queries.jsonl}",
            """streams:
  - {name: keys, share: 1/4, queries: [{key: "https://a/0"}, {key: 7}]}
  - name: rest
    share: 3/4
    queries: [{prefix: "https://"}]
    svt: {mechanism: above_threshold, threshold: 10, answers: numeric}
""",
        ).replace("epsilon: 1000", "epsilon: 2")
    )
    job = load()
    keys, rest = job.streams
    assert (keys.params.epsilon, rest.params.epsilon) == (Fraction(1, 2), Fraction(3, 2))
    assert (keys.params.sensitivity, rest.params.sensitivity) == (1, 4)
    assert job.guarantee().epsilon == 2
    assert [(event.kind, event.epsilon) for event in job.events()] == [
        ("svt", Fraction(1, 2)),
        ("svt", Fraction(3, 4)),
        ("laplace", Fraction(3, 4)),
    ]
    run_stages(job, path="answers.jsonl", release_key=KEY)
    header, rows = read("answers.jsonl")
    assert header["guarantee"]["epsilon"] == "2"
    assert [row["stream"] for row in rows] == ["keys", "keys", "rest", "rest"]
    assert rows[2]["above"]
    assert {"gap", "value", "estimate"} <= set(rows[2])


def test_record_level_without_a_user_column(job_dir):
    job = load("input.user=null", "privacy.max_contributions=null", "svt.threshold=-100000")
    assert job.streams[0].params.sensitivity == 1
    run_stages(job, path="answers.jsonl", release_key=KEY)
    header, rows = read("answers.jsonl")
    table = pa.concat_tables([pq.read_table(path) for path in sorted(Path("data").iterdir())])
    exact = sum(url.as_py().startswith("https://a/") for url in table["url"])
    assert abs(rows[2]["gap"] - 100_000 - exact) <= 2
    assert header["guarantee"]["unit"] == "record"


# --- the command ------------------------------------------------------------------------------------------


def command(*arguments):
    return CliRunner().invoke(cli, ["sparse-vector", "alerts.yaml", *arguments], catch_exceptions=True)


def test_command_writes_once_and_check_spends_nothing(job_dir):
    checked = command("--check", "--set", "privacy.epsilon=1")
    assert checked.exit_code == 0, checked.output
    assert "sensitivity 4" in checked.output
    assert "no budget was spent" in checked.output
    assert not Path("out").exists()
    done = command("--quiet")
    assert done.exit_code == 0, done.output
    _, rows = read("out/answers.jsonl")
    assert len(rows) == 5
    assert sorted(Path("out").iterdir()) == [Path("out/answers.jsonl")]
    again = command("--quiet")
    assert isinstance(again.exception, HushgramError)
    assert "exists already" in str(again.exception)
    assert "exists already" in str(command("--check").exception)


@pytest.mark.parametrize("method", ["sparse-vector", "histogram"])
def test_the_terminal_shows_what_was_found(job_dir, method):
    done = command("--set", f"svt.method={method}")
    assert done.exit_code == 0, done.output
    _, rows = read("out/answers.jsonl")
    shown = [line.split() for line in done.output.split("\n\n")[1].splitlines()]
    name = "gap" if method == "sparse-vector" else "value"
    assert shown == [["id", name], *([r["id"], f"{r[name]:,}"] for r in rows if r["above"])]


def test_the_ledger_charges_every_stream(job_dir):
    from hushgram.ledger import Ledger, summarise

    made = CliRunner().invoke(
        cli, ["ledger", "init", "--dataset", "views", "--epsilon", "3", "--ledger", "sqlite:///ledger.db"]
    )
    assert made.exit_code == 0, made.output
    options = [
        "--set",
        "dataset=views",
        "--set",
        "ledger=sqlite:///ledger.db",
        "--set",
        "privacy.epsilon=2",
        "--quiet",
    ]
    first = command(*options)
    assert first.exit_code == 0, first.output
    before = Path("out/answers.jsonl").read_bytes()
    assert command(*options).exit_code == 0  # done already: nothing is drawn again
    assert Path("out/answers.jsonl").read_bytes() == before
    with Ledger("sqlite:///ledger.db") as ledger:
        assert summarise(ledger, "views").spent_epsilon == "2"
    more = command(*options, "--set", "sparse_vector=more", "--set", "output.path=out/more.jsonl")
    assert more.exception.exit_code == 5


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["svt.cutoff=0"], "svt.cutoff must be at least 1"),
        (["svt.cutoff=null"], "svt.cutoff is missing"),
        (["svt.mechanism=above_threshold"], "svt.cutoff must be 1 or left out"),
        (["privacy.delta=0.9", "svt.variant=dwork-roth", "privacy.epsilon=1"], "4 ln(1/delta)"),
        (['stream=[{count: "x"}]'], "unknown query kind or field 'count'"),
        (["stream=[{key: a, id: x}, {key: b, id: x}]"], "two queries have the id 'x'"),
        (["stream=[{key: a, seq: 1}, {key: b, seq: 1}]"], "both have seq 1"),
        (["stream=[{column: size, between: [1, 2]}]"], "no column 'size'"),
        (['stream=[{where: "status ="}]'], "where: expected a value at character 9"),
        (["stream=[{where: \"status = 'x'\"}]"], "at character 10"),
        (["stream=[]"], "no queries"),
        (["stream={path: nowhere.jsonl}"], "nowhere.jsonl"),
        (["stream=null"], "stream or streams is needed"),
        (["svt=null"], "svt is missing"),
        (["svt.answers=all"], "svt.answers"),
        (["svt.method=laplace"], "svt.method"),
        (["svt.method=histogram", "svt.margin=5"], "svt.margin has no meaning where method is histogram"),
        (["svt.method=histogram", "svt.variant=dwork-roth"], "svt.variant has no meaning"),
        (["svt.margin=-1"], "svt.margin"),
        (
            ["svt.margin=5", "svt.variant=dwork-roth"],
            "svt.margin must be left out where variant is dwork-roth",
        ),
        (["svt.beta=0"], "svt.beta must be above 0"),
        (["input.path=none/*.parquet"], "matches no file"),
        (["privacy.max_contributions=null"], "privacy.max_contributions is missing"),
    ],
)
def test_mistakes_are_one_line_before_anything_runs(job_dir, overrides, message):
    arguments = [part for text in overrides for part in ("--set", text)]
    result = command(*arguments)
    assert isinstance(result.exception, HushgramError), result.output
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not Path("out").exists()


@pytest.mark.parametrize("name", ["alerts", "ranges"])
def test_the_configs_that_come_with_hushgram_are_valid(name):
    config = load_config(Path(__file__).parents[3] / "configs" / f"{name}.yaml", [], SparseVectorConfig)
    assert SparseVectorJob(config).queries[0]
