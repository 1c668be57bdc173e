"""``hushgram clip`` from config to result: bounding, formats, header, ledger, and one line for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from hushgram.errors import HushgramError
from hushgram.mechanisms.clipping import clip_column
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.cli import cli
from hushgram.pipelines.config.models import load_config
from hushgram.pipelines.jobs.clip import ClipConfig
from hushgram.pipelines.run.job_runner import load_job, run_stages

KEY = ReleaseKey(bytes(range(32)))
CONFIG = """
clip: ages
input: {path: ages.parquet, user: person, column: age}
privacy: {epsilon: 1, max_contributions: 1}
output: {path: out/ages.json}
"""


@pytest.fixture
def ages(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    column = np.clip(rng.gamma(8.5, 4.58, 8000), 17, 90).astype(int)
    people = np.arange(8000)
    repeated = np.concatenate([people, people[:500]])
    table = pa.table({"person": repeated, "age": np.concatenate([column, column[:500]])})
    table = table.append_column("weight", pa.array(rng.normal(70, 10, 8500)))
    table = table.append_column("name", pa.array(["x"] * 8500))
    pq.write_table(table, tmp_path / "ages.parquet")
    (tmp_path / "clip.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return column


def load(*overrides):
    job = load_job("clip", "clip.yaml", overrides)
    assert job.source.files
    return job


def result_of(job, name="result.json"):
    run_stages(job, path=name, release_key=KEY)
    return json.loads(Path(name).read_text())


def test_each_person_counts_once_and_the_core_agrees(ages):
    job = load()
    found = result_of(job)
    assert found["result"] == clip_column(ages, job.params, KEY).as_json()
    assert abs(found["result"]["average"] / ages.mean() - 1) < 0.02
    assert abs(found["result"]["count"] - 8000) < 60
    assert found["guarantee"]["epsilon"] == "1"
    assert found["parameters"]["split"] == {"bound": "1/3", "sum": "1/3", "count": "1/3"}
    assert [event.kind for event in job.events()] == ["svt", "laplace", "laplace"]
    assert sum(event.epsilon for event in job.events()) == 1


def test_two_records_of_a_person_may_count(ages):
    job = load("privacy.max_contributions=2", "privacy.epsilon=20")
    assert job.params.svt.sensitivity == 2
    assert abs(result_of(job)["result"]["count"] - 8500) < 20


def test_a_record_is_drawn_not_a_value(ages):
    """5,000 users with nine records of 1 and one of 10: the mean record is 1.9, the mean distinct value 5.5."""
    people = np.repeat(np.arange(5000), 10)
    values = np.tile([1] * 9 + [10], 5000)
    pq.write_table(pa.table({"person": people, "age": values}), "ages.parquet")
    for most in (1, 3):
        job = load(f"privacy.max_contributions={most}", "privacy.epsilon=10", "grid.stop=100")
        found = result_of(job, f"result-{most}.json")["result"]
        assert found["average_low"] < found["average"] < found["average_high"]
        # the mean of 5,000 draws is 1.9 ± 0.04, and the interval is about what was drawn
        assert found["average_low"] - 0.1 < 1.9 < found["average_high"] + 0.1
        assert abs(found["count"] - 5000 * most) < 20


def test_fractions_use_cents_and_csv_works(ages):
    pa.csv.write_csv(pq.read_table("ages.parquet", columns=["person", "weight"]), "w.csv")
    job = load("input.path=w.csv", "input.column=weight", "privacy.epsilon=10")
    assert job.params.granularity.denominator == 100
    assert abs(result_of(job)["result"]["average"] - 70) < 1.5


def test_record_level(ages):
    job = load("input.user=null", "privacy.max_contributions=null", "privacy.epsilon=20")
    found = result_of(job)
    assert abs(found["result"]["count"] - 8500) < 10
    assert found["guarantee"]["unit"] == "record"


def command(*arguments):
    return CliRunner().invoke(cli, ["clip", "clip.yaml", *arguments])


def test_command(ages):
    checked = command("--check")
    assert checked.exit_code == 0, checked.output
    assert "no budget was spent" in checked.output
    done = command()
    assert done.exit_code == 0, done.output
    words = " ".join(done.output.split())
    assert (
        "records with a number; at most 1 of a user, drawn at random; each clamped to 0 and the bound"
        in words
    )
    kept = "kept 8,000 of 8,500 records (94.1%) after bounding (exact, not for publication)"
    assert f"{kept}; raise max_contributions to keep more, with more noise" in words
    written = Path("out/ages.json").read_text()
    assert not [word for word in ("8,500", "8500", "kept", "94.1%") if word in written]
    result = json.loads(written)["result"]
    assert f"{result['average_low']:,.4f} to {result['average_high']:,.4f}" in words
    assert f"records counted {result['count']:,} ± {result['count_noise']}" in words.replace("│ ", "")
    assert json.loads(Path("out/ages.json").read_text())["name"] == "ages"
    assert "exists already" in str(command().exception)
    again = ["--set", "clip=again", "--set", "output.path=out/again.json"]
    whole = command(*again, "--set", "privacy.max_contributions=2", "--output", "told")
    line = next(line for line in whole.stderr.splitlines() if line.startswith("kept"))
    assert (
        line.split(maxsplit=1)[1]
        == "8,500 of 8,500 records (100.0%) after bounding (exact, not for publication)"
    )
    told = whole.stdout + Path("told").read_text() + Path("out/again.json").read_text()
    assert "guarantee" in told
    assert not [word for word in ("kept", "exact, not", "of 8,500") if word in told]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["input.column=size"], "no column 'size'"),
        (["input.column=name"], "must hold numbers"),
        (["privacy.delta=0.1"], "privacy.delta must be 0"),
        (["grid={kind: square}"], "grid.kind"),
        (["grid={start: 10, stop: 5}"], "lower < start <= stop"),
        (["privacy.split={bound: 0.5, sum: 0.5, count: 0.5}"], "add up to 1"),
        (["privacy.epsilon=0"], "privacy.epsilon must be above 0"),
    ],
)
def test_mistakes_are_one_line(ages, overrides, message):
    result = command(*[part for text in overrides for part in ("--set", text)])
    assert isinstance(result.exception, HushgramError), result.output
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not Path("out").exists()


def test_the_config_that_comes_with_hushgram_is_valid():
    config = load_config(Path(__file__).parents[3] / "configs" / "ages.yaml", [], ClipConfig)
    assert config.input.column == "age"


@pytest.mark.parametrize(
    ("input_", "words"),
    [
        ("{path: a.csv, user: person}", "input.column is missing"),
        (
            "{path: a.csv, user: person, column: age, zzz: 1}",
            "allowed here: column, csv, folder_columns, format, ",
        ),
        (
            "{path: a.csv, user: person, colum: age}",
            "input.colum is not a field of this config; did you mean column?",
        ),
    ],
)
def test_messages_call_the_field_column(input_: str, words: str, tmp_path: Path) -> None:
    config = tmp_path / "clip.yaml"
    config.write_text(CONFIG.replace("{path: ages.parquet, user: person, column: age}", input_))
    with pytest.raises(HushgramError) as problem:
        load_config(config, [], ClipConfig)
    assert words in str(problem.value)
    assert "key" not in str(problem.value).replace(str(tmp_path), "").replace("json_keys", "")
