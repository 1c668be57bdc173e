"""`hushgram randomized-response`: a survey from config to answers, and mistakes."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from hushgram.errors import HushgramError
from hushgram.pipelines.commands.randomized_response import command

CONFIG = """\
randomized_response: survey
input: {path: in/*.parquet}
secrets:
  smoker: {column: smokes}
  rich: {column: income, at_least: 60000}
public: [city, age]
privacy: {epsilon: 4.0}
output: {path: out/survey}
"""
RNG = np.random.default_rng(0)
ROWS = 20_000
SURVEY = {
    "smokes": RNG.random(ROWS) < 0.25,
    "income": RNG.integers(10_000, 120_000, ROWS),
    "city": RNG.choice(["Paris", "Rome"], ROWS),
    "age": RNG.integers(18, 90, ROWS),
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text("07" * 32)
    monkeypatch.setenv("HUSHGRAM_RELEASE_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)
    (tmp_path / "in").mkdir()
    (tmp_path / "survey.yaml").write_text(CONFIG)
    pq.write_table(pa.table(SURVEY), tmp_path / "in/a.parquet", row_group_size=5000)
    return tmp_path


def call(*arguments):
    result = CliRunner().invoke(command, list(arguments), catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, HushgramError | SystemExit):
        raise result.exception
    return result


def told(*arguments):
    result = call("ask", "out/survey", "--format", "json", *arguments)
    assert result.exit_code == 0, result.exception
    return [json.loads(line) for line in result.output.splitlines()]


def test_survey_from_config_to_answers(home):
    result = call("randomize", "survey.yaml")
    assert result.exit_code == 0, result.exception
    smoker, rich = told()
    assert smoker["secret"] == "smoker"
    assert smoker["low"] <= SURVEY["smokes"].sum() <= smoker["high"]
    assert rich["low"] <= (SURVEY["income"] >= 60_000).sum() <= rich["high"]
    (paris,) = told("--secret", "smoker", "--where", "city=Paris", "--where", "age>=30")
    kept = (SURVEY["city"] == "Paris") & (SURVEY["age"] >= 30)
    assert paris["low"] <= (SURVEY["smokes"] & kept).sum() <= paris["high"]
    manifest = json.loads((home / "out/survey/manifest.json").read_text())
    assert manifest["epsilon"] == "4"
    published = pq.read_table(home / "out/survey" / next(iter(manifest["parts"]))).column_names
    assert published == ["city", "age", "smoker", "rich"]  # neither smokes nor income


def test_reruns_and_workers_give_the_same_bytes(home):
    call("randomize", "survey.yaml", "--quiet")
    threads = ["--", "--direct_num_workers=3", "--direct_running_mode=multi_threading"]
    result = call("randomize", "survey.yaml", "--quiet", "--set", "output.path=out/again", *threads)
    assert result.exit_code == 0, result.exception
    first, second = (
        {p.name: p.read_bytes() for p in (home / "out" / n).iterdir()} for n in ("survey", "again")
    )
    assert first == second


def test_check_spends_nothing(home):
    result = call("randomize", "survey.yaml", "--check")
    assert "4-locally differentially private for the secret bits of one record" in " ".join(
        result.output.split()
    )
    assert "2 secret bits at epsilon 2" in result.output
    assert not (home / "out").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("public=[income]", "holds 'income', which the secret 'rich' is made of"),
        ("input.user=city", "each record is protected by itself"),
        ("input.bad_records=bad.jsonl", "in the local model no record leaves its reader as it is"),
        ("privacy.max_contributions=3", "epsilon holds for each record"),
        ("privacy.delta=0.1", "purely private"),
        ("privacy.epsilon=1000", "at most 30"),
        ("secrets={}", "secrets"),
        ("secrets={x: {column: income, equals: 3, at_least: 4}}", "exclude each other"),
        ("secrets={x: {where: income >=}}", "where expected a value at character 10"),
        ("secrets={x: {where: income > 3, column: income}}", "give one of them"),
        ("secrets={x: {where: city = 'Ulm'}}", "holds 'city', which the secret 'x' is made of"),
        ("secrets=[nothing]", "no column 'nothing'"),
        ("input.path=none/*.parquet", "matches no file"),
    ],
)
def test_mistakes_are_one_line(home, change, message):
    result = call("randomize", "survey.yaml", "--set", change)
    assert isinstance(result.exception, HushgramError), result.exception
    assert message in str(result.exception)
    assert not (home / "out/survey").exists()


def test_questions_that_cannot_be_asked(home):
    call("randomize", "survey.yaml", "--quiet")
    assert "not a public column" in str(call("ask", "out/survey", "--where", "income=3").exception)
    assert "no secret column" in str(call("ask", "out/survey", "--secret", "x").exception)
    assert "no manifest.json" in str(call("ask", "in").exception)


def test_bad_records_behind_the_first_blocks_stop_it(home):
    good = "2026,Paris\n" * 110_000
    (home / "in/b.csv").write_text("income,city\n" + good + "2026,Paris,75001\n" * 9000)
    config = CONFIG.replace("*.parquet", "b.csv").replace("[city, age]", "[city]")
    secrets = "secrets:\n  rich: {where: income >= 60}\n"
    (home / "survey.yaml").write_text(
        config[: config.index("secrets")] + secrets + config[config.index("public") :]
    )
    problem = call("randomize", "survey.yaml").exception
    assert f"b.csv, line 110002 (byte {len(good) + 12}): 3 fields instead of 2; more than" in str(problem)
    assert "bad_records" not in str(problem)
    assert not (home / "out/survey").exists()
