"""`--check` is one thing for all six jobs: it ends as the run would, with the same message, and leaves no trace."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgram.ledger import Ledger
from tests.pipelines.all_jobs import JOBS, LEDGER, call, exit_code, table, write_home

Change = Callable[[Path, str], None]


def nothing(folder: Path, job: str) -> None:
    """All is well."""


def no_input(folder: Path, job: str) -> None:
    (folder / "data.parquet").unlink()


def torn_input(folder: Path, job: str) -> None:
    content = (folder / "data.parquet").read_bytes()
    (folder / "data.parquet").write_bytes(content[: len(content) // 2])


def no_column(folder: Path, job: str) -> None:
    pq.write_table(table().drop_columns([JOBS[job][2]]), folder / "data.parquet")


def two_columns_of_one_name(folder: Path, job: str) -> None:
    held = table()
    column = JOBS[job][2]
    schema = pa.schema([*held.schema, pa.field(column, held.schema.field(column).type)])
    pq.write_table(
        pa.Table.from_arrays([*held.columns, held[column]], schema=schema), folder / "data.parquet"
    )


def something_at_the_output(folder: Path, job: str) -> None:
    (folder / "out").mkdir()
    (folder / "out/result").write_text("somebody's")


def a_file_in_the_way(folder: Path, job: str) -> None:
    (folder / "out").write_text("not a directory")


def no_lists(folder: Path, job: str) -> None:
    (folder / "pages.txt").unlink()
    (folder / "queries.jsonl").unlink()


def released_before_and_lost(folder: Path, job: str) -> None:
    import shutil

    assert exit_code(call(job, "--quiet", config=f"{job}-tracked.yaml")) == 0
    shutil.rmtree(folder / "out")


def released_before(folder: Path, job: str) -> None:
    assert exit_code(call(job, "--quiet", config=f"{job}-tracked.yaml")) == 0


def used_for_other_data(folder: Path, job: str) -> None:
    released_before(folder, job)
    pq.write_table(table().slice(1), folder / "data.parquet")


TRACKED = ["tracked"]
CASES: dict[str, tuple[Change, list[str], int]] = {
    "all is well": (nothing, [], 0),
    "all is well with a ledger": (nothing, TRACKED, 0),
    "released before": (released_before, TRACKED, 0),
    "no input": (no_input, [], 3),
    "torn input": (torn_input, [], 3),
    "no column": (no_column, [], 3),
    "two columns of one name": (two_columns_of_one_name, [], 3),
    "epsilon": (nothing, ["--set", "privacy.epsilon=0"], 2),
    "unknown field": (nothing, ["--set", "speed=9"], 2),
    "unknown runner": (nothing, ["--", "--runner=NoSuchRunner"], 2),
    "output is there": (something_at_the_output, [], 7),
    "output is there, with a ledger": (something_at_the_output, TRACKED, 7),
    "a file in the way": (a_file_in_the_way, [], 7),
    "output cannot be written": (nothing, ["--set", "output.path=/proc/nowhere/result"], 7),
    "metrics cannot be written": (nothing, ["--metrics", "/proc/nowhere/m.prom"], 7),
    "rows cannot be written": (nothing, ["--format", "csv", "-o", "/proc/nowhere/rows"], 7),
    "no file system": (nothing, ["--set", "input.path=ipfs://x/y"], 3),
    "no file system for the output": (nothing, ["--set", "output.path=ipfs://x/y"], 7),
    "budget": (nothing, [*TRACKED, "--set", "privacy.epsilon=6"], 5),
    "no data set": (nothing, [*TRACKED, "--set", "dataset=nobody"], 6),
    "no ledger": (nothing, [*TRACKED, "--set", "ledger=sqlite:///none.db"], 6),
    "ledger without data set": (nothing, ["--set", f"ledger={LEDGER}"], 2),
    "released and lost": (released_before_and_lost, TRACKED, 7),
    "used for other data": (used_for_other_data, TRACKED, 6),
    "used with other parameters": (released_before, [*TRACKED, "--set", "privacy.epsilon=0.5"], 6),
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("HUSHGRAM_LEDGER", "HUSHGRAM_RELEASE_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    write_home(tmp_path)
    return tmp_path


def state(folder: Path) -> object:
    """Every file but the ledger's own, and what the ledger holds."""
    files = {
        path: path.is_file() and path.read_bytes() for path in folder.rglob("*") if "ledger" not in path.name
    }
    with Ledger(LEDGER) as ledger:
        return files, ledger.history("people")


#: what no job has code of its own for: each of these is tried with three jobs, in turn
SHARED = [
    "unknown field", "unknown runner", "a file in the way", "output cannot be written", "metrics cannot be written",
    "rows cannot be written", "no file system", "no file system for the output", "no data set", "no ledger",
    "ledger without data set", "torn input", "no input",
]  # fmt: skip
PAIRS = [
    (job, case)
    for case in CASES
    for at, job in enumerate(JOBS)
    if case not in SHARED or (SHARED.index(case) + at) % len(JOBS) in (0, 2, 4)
]
TRIED = [
    # Each job where all is well, each case with every third job; the others are left to `make test-all`.
    pytest.param(*pair, marks=() if pair[1] == "all is well" or number % 3 == 0 else pytest.mark.long)
    for number, pair in enumerate(PAIRS)
]


@pytest.mark.parametrize(("job", "case"), TRIED)
def test_check_ends_as_the_run_does(home: Path, job: str, case: str) -> None:
    change, arguments, code = CASES[case]
    change(home, job)
    config = f"{job}-tracked.yaml" if "tracked" in arguments else f"{job}.yaml"
    rest = [word for word in arguments if word != "tracked"]
    before = state(home)
    beam = rest.index("--") if "--" in rest else len(rest)
    checked = call(job, *rest[:beam], "--check", *rest[beam:], config=config)
    assert exit_code(checked) == code, (checked.exception, checked.output)
    assert state(home) == before or "rows cannot" in case
    ran = call(job, "--quiet", *rest, config=config)
    assert exit_code(ran) == code, (ran.exception, ran.output)
    if code:
        # but for temporary names
        assert re.sub(r"\.\d+", "", str(checked.exception)) == re.sub(r"\.\d+", "", str(ran.exception))
        assert "\n" not in str(ran.exception)
        with Ledger(LEDGER) as ledger:
            assert sum(release.charged for release in ledger.history("people")) == (
                "released" in case or "used" in case
            )


@pytest.mark.parametrize("job", ["answer", "top", "sparse-vector"])
def test_files_that_a_config_names(home: Path, job: str) -> None:
    no_lists(home, job)
    for extra in ("--check", "--quiet"):
        assert exit_code(call(job, extra)) == 3


@pytest.mark.parametrize("job", JOBS)
def test_what_is_told(home: Path, job: str) -> None:
    words = " ".join(call(job, "--check").output.split())
    unit = "record" if job == "randomized-response" else "user"
    assert f"one {unit}" in words
    for expected in (
        "differentially private for", "e^1", "no ledger", "out/result", "input 1 file (parquet)",
        "400 rows (exact, not for publication)", "ok: nothing was run and no budget was spent",
    ):  # fmt: skip
        assert expected in words


def lines_of_a_file(home: Path, *options: str) -> list[list[tuple[str, str]]]:
    """What ``--check -o`` writes with the data, and with many times as many records."""
    found = []
    for times in (1, 50):
        pq.write_table(pa.concat_tables([table()] * times), home / "data.parquet")
        done = call("release", "--check", "--format", "json", "--force", "-o", str(home / "lines"), *options)
        assert exit_code(done) == 0, done.output
        rows = map(json.loads, (home / "lines").read_text().splitlines())
        found.append([(row["name"], row["text"]) for row in rows])
    return found


def test_a_file_does_not_depend_on_the_size_of_the_input(home: Path) -> None:
    few, many = lines_of_a_file(home, "--set", "sizes=null")
    assert few == many
    assert "guarantee" in dict(few)
    assert "detection limit" not in dict(few)
    few, many = lines_of_a_file(home, "--set", "sizes.records=1000", "--set", "sizes.keys=100")
    assert few == many
    assert dict(few)["if"] == "1,000 records of 100 keys (as stated)"
