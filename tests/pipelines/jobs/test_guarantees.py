"""Every job says in one sentence who is protected, against what, at what cost: the same wherever it is read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hushgram.pipelines.run.job_runner import load_job
from tests.pipelines.all_jobs import JOBS, call, exit_code, write_home

CHANGED = (
    "for the secret bits of one record changed; public columns and the number of records are not protected."
)
USER = "for one user added or removed, where each user counts at most {} in all{}."
RECORD = "for one record added or removed."
SUBJECTS = {
    "release": "The sketch is",
    "sparse-vector": "All answers together are",
    "clip": "Bound, sum, count and average together are",
    "answer": "Answers and hypothesis together are",
    "randomized-response": "The table is",
    "top": "The chosen keys are",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)
    write_home(tmp_path)
    return tmp_path


def sentences(value: Any) -> list[str]:
    """Every sentence about a guarantee in a released JSON document."""
    if isinstance(value, dict):
        return [found for inner in value.values() for found in sentences(inner)]
    if isinstance(value, list):
        return [found for inner in value for found in sentences(inner)]
    return [value] if isinstance(value, str) and "differentially private" in value else []


def expected(job: str, unit: str) -> str:
    if job == "randomized-response":
        return f"The table is 1-locally differentially private {CHANGED}"
    bounds = (1, "") if job == "clip" else (2, " and 1 for one key")
    rest = USER.format(*bounds) if unit == "user" else RECORD
    return f"{SUBJECTS[job]} 1-differentially private {rest}"


@pytest.mark.parametrize("unit", ["user", "record"])
@pytest.mark.parametrize("job", SUBJECTS)
def test_one_sentence_everywhere(home: Path, job: str, unit: str) -> None:
    # without a user, and without bounds that only users have
    changes = (
        ["--set", "input.user=null", "--set", "privacy.max_contributions=null"] if unit == "record" else []
    )
    sentence = expected(job, unit)
    assert load_job(job, f"{job}.yaml", changes[1::2]).guarantee().sentence() == sentence
    assert sentence in " ".join(call(job, "--check", *changes).output.split())
    ran = call(job, *changes)
    assert exit_code(ran) == 0, ran.exception
    assert sentence in " ".join(ran.output.split())
    path = home / "out/result"
    text = (path / "manifest.json" if path.is_dir() else path).read_text()
    documents = [json.loads(text)] if path.is_dir() or job == "clip" else map(json.loads, text.splitlines())
    assert set(sentences(list(documents))) == {sentence}
    if job == "release":
        shown = call_inspect("out/result")
        assert sentence in " ".join(shown.split())


@pytest.mark.parametrize("unit", ["user", "record"])
def test_metrics_say_what_they_lose_together_and_each(home: Path, unit: str) -> None:
    assert JOBS.keys() - SUBJECTS.keys() == {"metrics"}
    changes = ["--set", "input.user=null"] if unit == "record" else []
    whole = f"The sketches together are 1-differentially private for one {unit} added or removed."
    assert load_job("metrics", "metrics.yaml", changes[1::2]).guarantee().sentence() == whole
    assert whole in " ".join(call("metrics", "--check", *changes).output.split())
    ran = call("metrics", *changes)
    assert exit_code(ran) == 0, ran.exception
    assert whole in " ".join(ran.output.split())
    for name in ("views", "years"):
        part = f"The sketch is 0.5-differentially private for one {unit} added or removed"
        assert part in " ".join(call_inspect(f"out/result/{name}.sketch").split())


def call_inspect(path: str) -> str:
    from click.testing import CliRunner

    from hushgram.pipelines.cli import cli

    return CliRunner().invoke(cli, ["inspect", path], catch_exceptions=False).output


@pytest.mark.long
def test_metrics_that_share_a_selection_say_so(home: Path) -> None:
    """The pass, its --check, and each of its sketches name the selection, which is charged once."""
    changes = ["--set", "privacy.delta=1e-3", "--set", "privacy.epsilon=4"]
    once = (
        "Keys are selected once for views and years, by weights in one to three rounds, as the histogram over users"
        " suggests (at most 100 keys per user); the noise of these metrics is one mechanism."
    )
    job = load_job("metrics", "metrics.yaml", changes[1::2])
    whole = (
        f"The sketches together are (4, 0.001)-differentially private for one user added or removed. {once}"
    )
    assert job.guarantee().sentence() == whole
    assert [event.kind for event in job.events()].count("weighted-selection") == 1
    checked = " ".join(call("metrics", "--check", *changes).output.split())
    assert whole in checked
    assert "on each named key" in checked
    stated = re.findall(r"standard deviation (\S+) on each named key", checked)
    forecast = re.findall(r"named keys, standard deviation (\S+) on each", checked)
    assert len(stated) == 2
    assert stated == forecast
    ran = call("metrics", *changes)
    assert exit_code(ran) == 0, ran.exception
    for name, other in (("views", "years"), ("years", "views")):
        shown = " ".join(call_inspect(f"out/result/{name}.sketch").split())
        assert f"Keys are selected together with {other}: (" in shown
        assert "is spent once, on the selection and on the noise of all of these metrics." in shown
