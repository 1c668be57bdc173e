"""A new job is one module and one registry line: command, --check, ledger, formats, logs and metrics come with it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pydantic import Field

from hushgram.accounting import Event
from hushgram.ledger import Ledger
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.sampling import discrete_laplace
from hushgram.pipelines import jobs
from hushgram.pipelines.cli import cli
from hushgram.pipelines.config.models import JobConfig, Name
from hushgram.pipelines.jobs.job import Job, Line, write_lines
from tests.pipelines.all_jobs import LEDGER, write_home


# The module.
class RowsConfig(JobConfig):
    """How many records are there?"""

    NAME: ClassVar[str] = "rows"
    rows: Name = Field(description="the name of this run")


class Rows(Job[RowsConfig]):
    Config = RowsConfig
    subject = "The number is"

    def events(self) -> list[Event]:
        return [Event("laplace", self.config.privacy.epsilon)]

    def build(self, pipeline: Any, path: str, release_key: ReleaseKey, local: Any) -> None:
        import apache_beam as beam

        key = self.config.input.key
        scale = self.config.privacy.contributions / self.config.privacy.epsilon
        _ = (
            self.records(pipeline)
            | "Bound" >> self.bounding(key, release_key, local, texts=False)
            | "Total" >> beam.Map(lambda part: int(part.counts.sum()))
            | "Sum" >> beam.CombineGlobally(sum)
            | "Noise" >> beam.Map(_noisy, scale, release_key)
            | "Write" >> beam.Map(lambda number: write_lines(path, [{"rows": number}]))
        )

    def check_lines(self) -> Iterator[Line]:
        yield "toy", "a number"

    def released(self, path: str) -> pa.Table:
        return pa.table({"rows": [json.loads(Path(path).read_text())["rows"]]})


def _noisy(exact: int, scale: Any, release_key: ReleaseKey) -> int:
    return exact + int(discrete_laplace(scale, 1, release_key.source("rows", 0, str(exact).encode()))[0])


CONFIG = f"""\
rows: run
dataset: people
ledger: {LEDGER}
input: {{path: data.parquet, user: user, key: url}}
privacy: {{epsilon: 1, max_contributions: 2}}
output: {{path: out/rows}}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_home(tmp_path)
    (tmp_path / "rows.yaml").write_text(CONFIG)
    module = ModuleType("toy_rows_job")
    module.JOB = Rows  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "toy_rows_job", module)
    monkeypatch.setitem(jobs.JOBS, "rows", ("toy_rows_job", "How many records are there?"))  # the line
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, ["rows", "rows.yaml", *words], catch_exceptions=False)


def test_everything_comes_with_it(home: Path) -> None:
    assert "How many records are there?" in CliRunner().invoke(cli, ["--help"]).output
    checked = " ".join(call("--check").output.split())
    assert "The number is 1-differentially private for one user added or removed" in checked
    assert "toy a number" in checked
    made = call("--format", "csv", "--log", "json", "--metrics", "m.prom")
    number = int(made.stdout.splitlines()[1])
    assert 100 < number < 250  # a hundred users, two records each
    assert json.loads(made.stderr.splitlines()[-1])["event"] == "finished"
    assert 'job="rows"' in (home / "m.prom").read_text()
    again = call("--quiet")
    assert again.exit_code == 0
    with Ledger(LEDGER) as ledger:
        assert [(row.job, row.status) for row in ledger.history("people")] == [("rows", "committed")]
