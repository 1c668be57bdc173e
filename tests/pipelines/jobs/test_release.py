"""`hushgram release`: check, run, overrides, dates, formats, Beam options, and one line for each mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from hushgram import Sketch
from hushgram.accounting import Budget
from hushgram.errors import BudgetExceeded, HushgramError
from hushgram.ledger import Ledger
from hushgram.pipelines.commands.job import job_command

CONFIG = """\
release: urls
input: {path: in/*.parquet, user: user_id, key: url}
privacy: {epsilon: 1.0, max_contributions: 4}
output: {path: out/urls.sketch}
"""
USERS = [f"u{i % 50}" for i in range(400)]
KEYS = [f"https://example.org/{i % 40 if i % 3 else 0}" for i in range(400)]


# of what each user has, distinct keys up to max_contributions
KEPT = sum(min(len({k for v, k in zip(USERS, KEYS, strict=True) if u == v}), 4) for u in set(USERS)) / len(
    USERS
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a config and the same records in every format."""
    monkeypatch.chdir(tmp_path)
    key = tmp_path / "key"
    key.write_text("07" * 32)
    monkeypatch.setenv("HUSHGRAM_RELEASE_KEY_FILE", str(key))
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)
    (tmp_path / "in").mkdir()
    (tmp_path / "urls.yaml").write_text(CONFIG)
    pq.write_table(pa.table({"user_id": USERS, "url": KEYS}), tmp_path / "in/a.parquet")
    rows = list(zip(USERS, KEYS, strict=True))
    (tmp_path / "a.csv").write_text("user_id,url\n" + "".join(f"{u},{k}\n" for u, k in rows))
    line = '{} - - [10/Oct/2026:13:55:36 +0000] "GET {} HTTP/1.1" 200 5\n'
    (tmp_path / "a.log").write_text("".join(line.format(u, k) for u, k in rows))
    return tmp_path


def call(*arguments: str) -> Result:
    result = CliRunner().invoke(job_command("release"), list(arguments), catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, HushgramError | SystemExit):
        raise result.exception
    return result


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def test_check_says_everything_and_runs_nothing(home: Path) -> None:
    result = call("urls.yaml", "--check", "--set", "sizes={records: 10000, keys: 1000}")
    assert result.exit_code == 0, result.exception
    words = " ".join(result.stdout.split())
    for expected in (
        "guarantee The sketch is 1-differentially private for one user added or removed, where each user counts at "
        "most 4 in all and 1 for one key. Whether any one user is in the data or not changes the probability",
        "budget contributions 0.01, threshold 0.99",
        "bits_per_key 8.8",
        "if 10,000 records of 1,000 keys",
        "size about",
        "heavy keys",
        "root mean square",
        "input 1 file (parquet)",
        "400 rows (exact, not for publication)",
        "columns user_id string, url string",
        f"kept {KEPT:.1%} of records after bounding (exact, not for publication)",
        f"warning bounding dropped {1 - KEPT:.0%} of records (exact, not for publication), which no interval",
        "accounts for; raise max_contributions",
        "ok: nothing was run and no budget was spent",
    ):
        assert expected in words
    assert not (home / "out" / "urls.sketch").exists()


def test_check_asks_the_ledger_and_charges_nothing(home: Path) -> None:
    with Ledger.create("sqlite:///ledger.db") as ledger:
        ledger.add_dataset("views", Budget("1.5", "0"))
    tracked = [
        "--set",
        "dataset=views",
        "--set",
        "ledger=sqlite:///ledger.db",
        "--set",
        "sizes={records: 9, keys: 9}",
    ]
    for _ in range(2):
        result = call("urls.yaml", "--check", *tracked)
        assert result.exit_code == 0, result.exception
        assert "it fits" in result.stdout
    result = call("urls.yaml", "--check", *tracked, "--set", "privacy.epsilon=2")
    assert isinstance(result.exception, BudgetExceeded)


def test_release_writes_a_sketch_and_says_what_next(home: Path) -> None:
    result = call("urls.yaml", "--set", "input.rejected_records=rejected.jsonl")
    assert result.exit_code == 0, result.exception
    words = " ".join(result.stdout.split())
    assert "read 400 records in" in words
    assert "(exact, not for publication)" in words
    assert "1-differentially private for one user added or removed" in words
    assert "hushgram query out/urls.sketch KEY" in words
    assert "nothing tracks the privacy budget" in result.stderr
    Sketch.open("out/urls.sketch").verify()


def test_the_same_records_give_the_same_bytes_from_every_format(home: Path) -> None:
    formats = {
        "parquet": "input.path=in/*.parquet",
        "csv": "input.path=a.csv",
        "log": "input={path: a.log, preset: access-log, user: ip, key: path}",
    }
    for name, override in formats.items():
        result = call("urls.yaml", "--quiet", "--set", override, "--set", f"output.path=out/{name}")
        assert result.exit_code == 0, result.exception
        assert result.stdout == ""
        assert files(home / "out" / name) == files(home / "out/parquet")


def test_dates_and_rejected_records(home: Path) -> None:
    (home / "2026-11-15.csv").write_text("user_id,url\nu1,/a\n,/b\nu2\n")
    dated = ["release=urls-{date}", "input.path={date}.csv", "output.path=out/{date}.sketch"]
    dated += ["input.rejected_records=rejected.jsonl", "input.max_rejected_share=0.7"]
    arguments = [part for text in dated for part in ("--set", text)]
    result = call("urls.yaml", "--date", "2026-11-15", *arguments)
    assert result.exit_code == 0, result.exception
    assert "2 records (exact, not for publication): 1 fields instead of 2: 1; user_id is null: 1" in " ".join(
        result.stdout.split()
    )
    assert len((home / "rejected.jsonl").read_text().splitlines()) == 2
    assert Sketch.open("out/2026-11-15.sketch").manifest.release == "urls-2026-11-15"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none.yaml"], 2, "none.yaml: no such file"),
        (["urls.yaml", "--set", "privacy.epsilon=0"], 2, "privacy.epsilon must be above 0"),
        (["urls.yaml", "--set", "input.path=nope/*"], 3, "input.path 'nope/*' matches no file"),
        (["urls.yaml", "--set", "input.key=uri"], 3, "no column 'uri'; did you mean 'url'?"),
        (["urls.yaml", "--set", "output.path=in"], 7, "in"),
        (["urls.yaml", "--check", "--set", "output.path=in"], 7, "output in exists already"),
        (["urls.yaml", "--", "flink"], 2, "expected Beam options such as --runner=FlinkRunner, got 'flink'"),
        (["urls.yaml", "--set", "ledger=sqlite:///x.db"], 2, "ledger is set but dataset is not"),
    ],
)
def test_mistakes_leave_nothing_behind(home: Path, arguments: list[str], code: int, message: str) -> None:
    before = sorted(home.rglob("*"))
    result = call(*arguments)
    assert isinstance(result.exception, HushgramError)
    assert result.exception.exit_code == code
    assert message in str(result.exception)
    after = [path for path in sorted(home.rglob("*")) if path not in before and path.name != "out"]
    assert not after


def test_the_real_command_prints_one_line_and_its_exit_code(home: Path) -> None:
    script = "import sys; from hushgram.pipelines.cli import main; main(sys.argv[1:])"
    run = [sys.executable, "-c", script, "release", "urls.yaml", "--set", "input.path=nope"]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=home, timeout=60)
    assert done.returncode == 3
    assert done.stderr == (
        "error: input.path 'nope' matches no file; check the pattern and the working directory\n"
    )
    assert done.stdout == ""


def test_empty_input_json_log_and_beam_options(home: Path) -> None:
    """An empty input releases noise; a JSON log has no progress and no summary beside it."""
    (home / "empty.jsonl").write_text("")
    arguments = ["--log", "json", "--set", "input.path=empty.jsonl"]
    arguments += ["--set", "input.min_rows=0", "--", "--runner=DirectRunner"]
    result = call("urls.yaml", *arguments)
    assert result.exit_code == 0, result.exception
    assert result.stdout == ""
    events = [json.loads(line)["event"] for line in result.stderr.splitlines()]
    assert events[-1] == "finished"
    Sketch.open("out/urls.sketch").verify()


def test_lookups_go_through_the_key_expression_of_the_release(home: Path) -> None:
    key = 'input.key=[user_id | substring 0 1, "url | path 1"]'
    settings = [key, "input.where=user_id != 'u7'", "privacy.epsilon=50", "privacy.max_contributions=1"]
    result = call("urls.yaml", *(word for text in settings for word in ("--set", text)))
    assert result.exit_code == 0, result.exception
    sketch = Sketch.open("out/urls.sketch")
    assert sketch.manifest.key_expression == "[user_id | substring 0 1, url | path 1]"
    told = sketch.estimate(['["u7","https://example.org/0?q#f"]', '["u","/0"]', "other"]).to_pylist()
    assert [row["key"] for row in told] == ['["u","/0"]', '["u","/0"]', "other"]
    assert told[0]["estimate"] == told[1]["estimate"] > 5 > told[2]["estimate"]


@pytest.mark.filterwarnings("error")
def test_a_bound_chosen_from_the_data_is_told_and_charged(home: Path) -> None:
    with Ledger.create("sqlite:///ledger.db") as ledger:
        ledger.add_dataset("views", Budget("2", "1e-5"))
    result = call(
        "urls.yaml",
        *("--set", "privacy={epsilon: 1, delta: 1e-6, max_contributions: auto}"),
        *("--set", "dataset=views", "--set", "ledger=sqlite:///ledger.db"),
    )
    assert result.exit_code == 0, result.exception
    words = " ".join(result.stdout.split())
    assert "chosen from the data; " in words
    sketch = Sketch.open("out/urls.sketch")
    sketch.verify()
    assert sketch.plan.users is not None
    assert sketch.guarantee.epsilon == 1
    with Ledger("sqlite:///ledger.db") as ledger:
        (entry,) = ledger.history("views")
        spent = [(event.kind, event.epsilon) for event in entry.events]
    assert spent == [
        ("contributions", Fraction(1, 20)),
        ("sizing", Fraction(1, 50)),
        ("weighted-selection", Fraction(93, 100)),
    ]


def test_a_bound_cannot_be_chosen_for_records_or_a_public_list(home: Path) -> None:
    (home / "keys.txt").write_text("/a\n")
    for change in ("input.user=null", "privacy.domain={public_keys: keys.txt}"):
        result = call("urls.yaml", "--set", "privacy.max_contributions=auto", "--set", change)
        assert "max_contributions auto needs a column of users" in str(result.exception)
    assert not (home / "out" / "urls.sketch").exists()


@pytest.mark.parametrize("value", [False, True], ids=["counts", "sums"])
def test_records_without_users_are_named_by_a_threshold(home: Path, value: bool) -> None:
    """Also in what --check expects: weights are for users alone."""
    pq.write_table(pa.table({"url": KEYS, "n": list(range(400))}), home / "in/a.parquet")
    more, column = (
        (", max_contributions: 20, max_value: 10, granularity: 1", "value: n") if value else ("", "")
    )
    changes = ("--set", f"input={{path: in/*.parquet, key: url, {column}}}")
    changes += ("--set", f"privacy={{epsilon: 1, delta: 1e-6{more}}}")
    checked = call("urls.yaml", "--check", *changes)
    assert checked.exit_code == 0, checked.exception
    assert "heavy keys" in checked.stdout
    assert "by weights" not in checked.stdout
    result = call("urls.yaml", *changes)
    assert result.exit_code == 0, result.exception
    sketch = Sketch.open("out/urls.sketch")
    assert sketch.guarantee.unit == "record"
    assert sketch.plan.selection.name == "threshold"


def test_several_keys_per_record_need_a_bound(home: Path) -> None:
    words = ("--set", "input={path: in/*.parquet, key: url | words}")
    result = call("urls.yaml", *words, "--set", "privacy={epsilon: 1}")
    assert "privacy.max_contributions is missing; say how many keys of one record may count" in str(
        result.exception
    )


def test_the_operator_sees_what_bounding_keeps(home: Path) -> None:
    """In --check and after a run alike; exact, so not in the sketch. All of it where nobody is bounded."""
    result = call("urls.yaml")
    words = " ".join(result.stdout.split())
    assert f"kept {KEPT:.1%} of records after bounding (exact, not for publication)" in words
    assert f"warning bounding dropped {1 - KEPT:.0%} of records" in words
    once = {"user_id": [f"u{i}" for i in range(400)], "url": KEYS, "price": [2.5] * 399 + [1_000.0]}
    pq.write_table(pa.table(once), home / "in/a.parquet")
    free = ("--check", "--set", "output.path=out/b.sketch")
    words = " ".join(call("urls.yaml", *free).stdout.split())
    assert "kept 100.0% of records after bounding" in words
    assert "warning" not in words
    sums = (
        "input.value=price",
        "privacy.max_value=10",
        "privacy.granularity=0.5",
        "privacy.max_contributions=10",
    )
    chosen = [word for each in sums for word in ("--set", each)]
    words = " ".join(call("urls.yaml", *free, *chosen).stdout.split())
    assert f"kept {(399 * 2.5 + 10) / (399 * 2.5 + 1_000):.1%} of the sum after bounding" in words
    assert "raise max_contributions or max_value" in words
