"""``input.value`` in a config: every format gives the same sums, and mistakes are one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from hushgram import Sketch
from hushgram.errors import HushgramError
from hushgram.pipelines.cli import cli

PRIVACY = "{epsilon: 1, max_contributions: 8000, max_value: 1000, granularity: 125}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    draw = np.random.default_rng(2)
    rows = 3000
    users, keys = np.arange(rows), draw.choice(["/a", "/b", "/c"], rows, p=[0.8, 0.15, 0.05])
    sizes = draw.integers(0, 2000, rows)
    pq.write_table(
        pa.table({"user": users, "url": keys, "bytes": sizes, "text": keys}), tmp_path / "data.parquet"
    )
    lines = [f"{u},{k},{b}\n" for u, k, b in zip(users, keys, sizes, strict=True)]
    (tmp_path / "data.csv").write_text("user,url,bytes\n" + "".join(lines))
    records = [
        {"user": int(u), "url": str(k), "bytes": int(b)} for u, k, b in zip(users, keys, sizes, strict=True)
    ]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(name: str, *options: str, privacy: str = PRIVACY, value: str = "bytes", extra: str = "") -> Result:
    Path("config.yaml").write_text(
        f"release: sums\ninput: {{path: {name}, user: user, key: url, value: {value}{extra}}}\n"
        f"privacy: {privacy}\noutput: {{path: out.sketch}}\n"
    )
    return CliRunner().invoke(cli, ["release", "config.yaml", *options])


def assert_near_truth() -> None:
    table = pq.read_table("data.parquet")
    truth = np.minimum(table["bytes"].to_numpy(), 1000)[table["url"].to_numpy() == "/a"].sum()
    estimate = Sketch.open("out.sketch").estimate("/a")["estimate"][0].as_py()
    assert abs(estimate - truth) < 0.15 * truth


def test_a_column_is_added_up(here: Path) -> None:
    checked = run("data.parquet", "--check")
    assert checked.exit_code == 0, checked.output
    assert "noisy sum of" in checked.output
    assert "at a sum of 1,250" in checked.output
    done = run("data.parquet")
    assert done.exit_code == 0, done.output
    assert_near_truth()
    for command in ("inspect", "heavy", "verify"):
        shown = CliRunner().invoke(cli, [command, "out.sketch"])
        assert shown.exit_code == 0, shown.output
    assert "noisy sum of at least" in CliRunner().invoke(cli, ["inspect", "out.sketch"]).output
    assert CliRunner().invoke(cli, ["report", "out.sketch", "-o", "report.html"]).exit_code == 0


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("data.csv", ["7,/a,-1\n", "7,/a,nan\n", "7,/a,inf\n", "7,/a,12x\n", "7,/a,1e300\n"]),
        (
            "data.jsonl",
            [
                '{"user": 7, "url": "/a", "bytes": -1}\n',
                '{"user": 7, "url": "/a", "bytes": [1]}\n',
                '{"user": 7, "url": "/a", "bytes": 1e300}\n',
            ],
        ),
    ],
)
def test_values_that_cannot_be_are_rejected(here: Path, name: str, bad: list[str]) -> None:
    missing = {"data.csv": "7,/a,\n", "data.jsonl": '{"user": 7, "url": "/a", "bytes": null}\n'}[name]
    with open(name, "a") as file:
        file.writelines([*bad, missing])  # what is missing adds nothing, and is not bad
    done = run(name, extra=", rejected_records: rejected.jsonl")
    assert done.exit_code == 0, done.output
    assert f"{len(bad)} records" in done.output
    assert len(Path("rejected.jsonl").read_text().splitlines()) == len(bad)
    assert_near_truth()


@pytest.mark.parametrize(
    ("privacy", "value", "words"),
    [
        ("{epsilon: 1, max_contributions: 8}", "bytes", "privacy.max_value"),
        ("{epsilon: 1, max_contributions: 8, max_value: 4}", "bytes", "privacy.granularity"),
        (
            "{epsilon: 1, max_contributions: 8, max_value: 3, granularity: 2}",
            "bytes",
            "whole multiple of granularity",
        ),
        (
            "{epsilon: 1, max_contributions: 8, max_value: 4, granularity: 0}",
            "bytes",
            "granularity must be above 0",
        ),
        ("{epsilon: 1, max_contributions: 2000000000, max_value: 4, granularity: 1}", "bytes", "2^20"),
        (
            "{epsilon: 1, max_contributions: 8, max_value: 4, granularity: 1, max_per_key: 2}",
            "bytes",
            "max_per_key",
        ),
        (PRIVACY, "url", "another column"),
        (PRIVACY, "text", "values must be whole numbers"),
        (PRIVACY, "nothing", "no column 'nothing'"),
    ],
)
def test_mistakes_are_one_line_before_anything_runs(here: Path, privacy: str, value: str, words: str) -> None:
    for options in ([], ["--check"]):
        refused = run("data.parquet", *options, privacy=privacy, value=value)
        assert isinstance(
            refused.exception, HushgramError
        )  # which the command shows in one line, with exit code 2
        assert words in str(refused.exception)
        assert "\n" not in str(refused.exception)
    assert not Path("out.sketch").exists()


def test_an_empty_file_has_no_records(here: Path) -> None:
    Path("empty.csv").write_text("")
    assert "empty.csv: no records" in str(run("empty.csv").exception)


def test_a_bound_without_values_is_refused(here: Path) -> None:
    Path("config.yaml").write_text(
        f"release: sums\ninput: {{path: data.csv, user: user, key: url}}\nprivacy: {PRIVACY}\noutput: {{path: o}}\n"
    )
    refused = CliRunner().invoke(cli, ["release", "config.yaml"])
    assert "input.value" in str(refused.exception)


def test_numbers_below_one_are_shown_as_they_are_and_not_as_0(here: Path) -> None:
    """max_contributions auto with a tiny unit: what users count at most, what the cut took, what to expect."""
    privacy = "{epsilon: 1, max_contributions: auto, max_value: 0.001, granularity: 0.0001}"
    checked = run("data.parquet", "--check", privacy=privacy)
    assert checked.exit_code == 0, checked.exception
    assert not re.search(r": 0\.0 \(root|intervals 0 wide", checked.stdout)
    done = run("data.parquet", privacy=privacy)
    assert done.exit_code == 0, done.exception
    words = " ".join(done.stdout.split())
    assert (
        "Each user counts at most max_contributions, which is chosen from a noisy histogram over users."
        in words
    )
    assert re.search(r"at most 0\.\d+ of a user, which was chosen from the data", words)
