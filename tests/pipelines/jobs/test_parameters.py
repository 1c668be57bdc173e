"""What a second attempt must have in common with the first: every option that can change the output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from hushgram.errors import LedgerError
from hushgram.pipelines.config.models import JobConfig
from hushgram.pipelines.jobs import job_class
from hushgram.pipelines.jobs.job import NEUTRAL
from hushgram.pipelines.run.budget import flatten
from hushgram.pipelines.run.job_runner import load_job, open_job_budget
from tests.pipelines.all_jobs import JOBS, call, exit_code, write_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUSHGRAM_LEDGER", raising=False)
    write_home(tmp_path)
    return tmp_path


def compared(job: str, *overrides: str) -> dict[str, str]:
    return flatten(load_job(job, f"{job}.yaml", overrides).parameters())


OPTIONS = {
    "release": ["privacy.bits_per_key=9", "sizes={records: 500, keys: 9}"],
    "sparse-vector": ["svt.threshold=21", "svt.beta=0.1", "svt.answers=gap", "stream=[{key: '/1'}]"],
    "clip": ["grid.stop=100", "grid.granularity=0.5", "privacy.split={bound: 0.5, sum: 0.25, count: 0.25}"],
    "answer": ["pmw.eta=0.1", "pmw.replay=3", "pmw.total=400", "queries=[{all: true}]"],
    "randomized-response": ["public=[age]", "secrets={smoker: {column: smokes, equals: 'true'}}"],
    "top": ["count=4", "privacy.max_per_key=2"],
}
READING = ["input.format=parquet", "input.csv.delimiter=;", "input.csv.quote=''", "input.csv.header=[a, b]"]


@pytest.mark.parametrize(
    ("job", "option"),
    [
        (job, option)
        for job, options in OPTIONS.items()
        for option in (*options, *READING, "privacy.epsilon=0.5")
    ],
)
def test_options_that_change_the_output_are_compared(home: Path, job: str, option: str) -> None:
    assert compared(job) != compared(job, option)


@pytest.mark.parametrize("job", JOBS)
def test_options_without_effect_are_not(home: Path, job: str) -> None:
    neutral = ["output.path=elsewhere", "workers=2", "shards=3"]
    if job != "randomized-response":  # which keeps no rejected records
        neutral.append("input.rejected_records=rejected.jsonl")
    assert compared(job) == compared(job, *neutral)


@pytest.mark.parametrize("job", JOBS)
def test_no_field_is_forgotten(job: str) -> None:
    """A field is compared or declared neutral; there is no third way, also for fields of tomorrow."""
    config: type[JobConfig] = job_class(job).Config

    class Tomorrow(config):  # type: ignore[misc, valid-type]
        new_option: int = 7

    names = {*Tomorrow.model_fields} - {config.NAME}
    shown = {name for name in names if NEUTRAL.get(name) is not True}
    assert "new_option" in shown
    assert {"privacy", "input"} <= shown
    inner: Any = Tomorrow.model_fields["input"].annotation
    assert issubclass(inner, BaseModel)
    assert set(inner.model_fields) - set(NEUTRAL["input"]) >= {"key", "user", "format", "csv"}


@pytest.mark.parametrize(("job", "option"), [("answer", "pmw.eta=0.1"), ("top", "input.format=parquet")])
def test_a_retry_that_differs_is_refused(home: Path, job: str, option: str) -> None:
    """eta and reading options were not compared before."""
    config = f"{job}-tracked.yaml"
    with open_job_budget(load_job(job, config)) as run:
        assert run.key  # and then nothing: noise may exist
    for how in ("--check", "--quiet"):
        result = call(job, how, "--set", option, config=config)
        assert isinstance(result.exception, LedgerError)
        assert option.partition("=")[0] in str(result.exception)
    assert exit_code(call(job, "--quiet", config=config)) == 0


def test_content_of_named_files_counts(home: Path) -> None:
    before = compared("top")
    (home / "pages.txt").write_text("/0\n/1\n/2\n/3\n")
    assert compared("top") != before
