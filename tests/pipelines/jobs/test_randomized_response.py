"""`hushgram randomized-response`: a survey from config to answers, and mistakes."""

import json
from collections import Counter

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
    "hobbies": [["chess"]] * ROWS,
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
        ("input.rejected_records=rejected.jsonl", "in the local model no record leaves its reader as it is"),
        ("privacy.max_contributions=3", "epsilon holds for each record"),
        ("privacy.delta=0.1", "has no delta"),
        ("privacy.epsilon=1000", "at most 30"),
        ("secrets={}", "secrets"),
        ("secrets={x: {column: income, equals: 3, at_least: 4}}", "exclude each other"),
        ("secrets={x: {where: income >=}}", "where expected a value at character 10"),
        ("secrets={x: {where: income > 3, column: income}}", "or where is needed"),
        ("secrets={x: {where: city = 'Ulm'}}", "holds 'city', which the secret 'x' is made of"),
        ("secrets=[nothing]", "no column 'nothing'"),
        ("input.where=smokes = true", "tests 'smokes', which the secret 'smoker' is made of"),
        (
            "input.where=age > 30 AND NOT income BETWEEN 1 AND 2",
            "tests 'income', which the secret 'rich' is made of",
        ),
        ("input.where=income.monthly > 3", "tests 'income.monthly', which the secret 'rich' is made of"),
        ("public=[income.monthly]", "holds 'income.monthly', which the secret 'rich' is made of"),
        ("public=[hobbies]", "column 'hobbies' is list<element: string>; publish columns of single values"),
        ("secrets=[hobbies]", "no bit can be made of hobbies (list<element: string>)"),
        ("input.path=none/*.parquet", "matches no file"),
    ],
)
def test_mistakes_are_one_line(home, change, message):
    for check in ((), ("--check",)):
        result = call("randomize", "survey.yaml", "--set", change, *check)
        assert isinstance(result.exception, HushgramError), result.exception
        assert message in str(result.exception)
    assert not (home / "out/survey").exists()


def test_questions_that_cannot_be_asked(home):
    call("randomize", "survey.yaml", "--quiet")
    assert "not a public column" in str(call("ask", "out/survey", "--where", "income=3").exception)
    assert "no secret column" in str(call("ask", "out/survey", "--secret", "x").exception)
    assert "no manifest.json" in str(call("ask", "in").exception)


def test_rejected_records_behind_the_first_blocks_stop_it(home):
    good = "2026,Paris\n" * 110_000
    (home / "in/b.csv").write_text("income,city\n" + good + "2026,Paris,75001\n" * 9000)
    config = CONFIG.replace("*.parquet", "b.csv").replace("[city, age]", "[city]")
    secrets = "secrets:\n  rich: {where: income >= 60}\n"
    (home / "survey.yaml").write_text(
        config[: config.index("secrets")] + secrets + config[config.index("public") :]
    )
    problem = call("randomize", "survey.yaml").exception
    assert f"b.csv, line 110002 (byte {len(good) + 12}): 3 fields instead of 2; more than" in str(problem)
    assert "rejected_records" not in str(problem)
    assert not (home / "out/survey").exists()


def released(home, config, **files):
    """The parts of the table of a config over these files, in their order."""
    for name, content in files.items():
        (home / f"in/{name}.csv").write_text(content)
    (home / "survey.yaml").write_text(config)
    result = call("randomize", "survey.yaml", "--quiet")
    assert result.exit_code == 0, result.exception
    tables = [pq.read_table(path) for path in sorted((home / "out/survey").glob("*.parquet"))]
    (home / "out/survey").rename(home / f"out/survey-{len(list((home / 'out').iterdir()))}")
    return tables


CSV = """\
randomized_response: survey
input: {path: in/*.csv}
secrets: {rich: {where: income >= 60}}
public: [id]
privacy: {epsilon: 2.0}
output: {path: out/survey}
"""


def test_parts_follow_the_number_of_records_and_not_how_a_secret_is_spelled(home):
    """Files are read in blocks of 16 MiB; where one ends follows from every byte before it, the secrets' too."""
    shapes = []
    for spelling in ("59", "60", "0" * 400_000 + "60", "much " * 100_000):
        lines = [f"{number},{spelling if number == 3 else 61},{'.' * (1 << 19)}" for number in range(64)]
        tables = released(home, CSV, a="id,income,note\n" + "\n".join(lines) + "\n")
        shapes.append([table.num_rows for table in tables])
        assert sorted(int(one) for table in tables for one in table.column("id").to_pylist()) == list(
            range(64)
        )
    assert shapes == [[64]] * 4


def test_a_file_sorted_by_the_secret_does_not_tell_it(home):
    lines = "".join(f"{number:04d},{100 if number < 1000 else 1}\n" for number in range(2000))
    (table,) = released(home, CSV, a="id,income\n" + lines)
    first = sum(int(one) < 1000 for one in table.column("id").to_pylist()[:1000])
    assert abs(first - 500) < 5.5 * np.sqrt(
        125
    )  # hypergeometric; false alarm once in 10^7 keys, and the key is fixed


def test_equal_records_in_any_order_and_any_files_make_tables_of_one_shape_and_order(home):
    """What comes out is ordered by the rows alone: without noise worth the name, the bytes are the same."""
    config = CSV.replace("2.0", "30")
    lines = [f"{number % 50},{number % 3 * 60}\n" for number in range(300)]
    head, backwards = "id,income\n", lines[::-1]
    one = released(home, config, a=head + "".join(lines), b=head)
    two = released(home, config, a=head + "".join(backwards[:7]), b=head + "".join(backwards[7:]))
    assert one == two
    assert one[0].num_rows == 300


def test_a_secret_that_cannot_be_read_is_zero_and_its_record_stays(home):
    """However many there are: they are no bad records."""
    odd = ["much", "", "6o", "-", "\xa060", "nan"]
    lines = "".join(f"{number},{odd[number % len(odd)]}\n" for number in range(200))
    (table,) = released(home, CSV.replace("2.0", "30"), a="id,income\n" + lines + "200,60\n")
    assert Counter(table.column("rich").to_pylist()) == {False: 200, True: 1}
    assert sorted(map(int, table.column("id").to_pylist())) == list(range(201))
