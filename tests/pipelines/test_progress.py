"""The display: plain lines without a terminal, a live one on it, errors of workers in one line."""

from __future__ import annotations

import io
import os
import time
from typing import Any

import apache_beam as beam
import pytest

from hushgram.errors import HushgramError, InputError, OutputError, ParameterError
from hushgram.pipelines import progress as module
from hushgram.pipelines.progress import EXACT, Progress, job_link, run_pipeline, stage_words
from hushgram.pipelines.runners import LOCAL, is_local, new_pipeline, pipeline_options, worker_count
from hushgram.transforms.read_records import PROGRESS_FILE, TICK


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def tick(rows: int, bad: int, size: int) -> None:
    with open(os.environ[PROGRESS_FILE], "ab") as file:
        file.write(TICK.pack(rows, bad, size))


def test_sums_ticks_and_cleans_up() -> None:
    assert PROGRESS_FILE not in os.environ
    with Progress("job", 100, quiet=True) as progress:
        path = os.environ[PROGRESS_FILE]
        tick(10, 1, 40)
        tick(5, 0, 20)
        progress.collect()
        assert (progress.rows, progress.bad, progress.size) == (15, 1, 60)
        progress.stage = "reading"
        assert f"15 rows ({EXACT})" in progress.line()
        assert "60 bytes of 100 bytes" in progress.line()
    assert not os.path.exists(path)
    assert PROGRESS_FILE not in os.environ


def test_quiet_where_there_is_no_terminal_and_nothing_takes_long() -> None:
    out = io.StringIO()
    with Progress("job", 100, file=out):
        tick(10, 0, 40)
    assert out.getvalue() == ""


def test_plain_lines_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PLAIN_SECONDS", 0.01)
    monkeypatch.setattr(module, "_REFRESH_SECONDS", 0.01)
    out = io.StringIO()
    with Progress("job", 100, file=out):
        tick(1234, 0, 40)
        time.sleep(0.2)
    lines = [line for line in out.getvalue().splitlines() if "1,234 rows" in line]
    first = lines[0]  # a line before the tick was read may say less
    assert first.startswith("job: starting · 1,234 rows")
    assert "\x1b" not in out.getvalue()


def test_live_display_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REFRESH_SECONDS", 0.02)
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with Progress("job", 100, file=out):
        tick(1234, 0, 40)
        time.sleep(0.3)
    assert "1,234 rows" in out.getvalue()


def test_stage_names_become_words() -> None:
    assert stage_words("((ref_ReadRecords/ReadItem_3)+(BoundContributions/Write))") == "reading"
    assert stage_words("(BoundContributions/Read)+(ref_Threshold)") == "bounding contributions"
    assert stage_words("Impulse") is None


def boom(value: int) -> int:
    raise InputError("data/a.csv: cannot be read")


def bug(value: int) -> int:
    raise KeyError("something else")


def run(function: Any) -> Any:
    options = pipeline_options()
    pipeline = new_pipeline(options)
    pipeline | beam.Create([1]) | "ReadItem" >> beam.Map(function)
    return run_pipeline(pipeline, options, title="t", quiet=True)


def test_a_workers_own_error_comes_back_as_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InputError) as caught:
        run(boom)
    assert str(caught.value) == "data/a.csv: cannot be read"
    assert not caplog.records


FROM_ANOTHER_PROCESS = """Traceback (most recent call last):
  File "x.py", line 1, in process
hushgram.errors.OutputError: out/a.sketch: disk is full [while running 'Write-ptransform-12']
"""


def test_an_error_from_another_process_too() -> None:
    with pytest.raises(OutputError) as caught, module._users_errors():
        raise RuntimeError(FROM_ANOTHER_PROCESS)
    assert str(caught.value) == "out/a.sketch: disk is full"


def test_a_bug_stays_a_bug() -> None:
    with pytest.raises(Exception, match="something else") as caught:
        run(bug)
    assert not isinstance(caught.value, HushgramError)


def test_local_runner_is_in_process_and_never_prism() -> None:
    for arguments in ([], ["--runner=DirectRunner"], ["--runner=direct"]):
        options = pipeline_options(arguments)
        assert is_local(options)
        assert options.get_all_options()["runner"] == LOCAL
        assert type(new_pipeline(options).runner).__name__ == "FnApiRunner"
    assert worker_count(pipeline_options([], workers=2)) == 2
    with pytest.raises(ParameterError, match="direct_num_workers must not be negative, got -1"):
        pipeline_options(["--direct_num_workers=-1"])


def test_other_runners_pass_through() -> None:
    options = pipeline_options(["--runner=FlinkRunner", "--flink_master=host:8081", "--parallelism=4"])
    assert not is_local(options)
    assert options.get_all_options()["flink_master"] == "host:8081"
    with pytest.raises(
        ParameterError, match="expected Beam options such as --runner=FlinkRunner, got 'flink'"
    ):
        pipeline_options(["flink"])


class Remote:
    """A finished remote job, as the runners return it."""

    def __init__(self, states: list[str]) -> None:
        self._states = states
        self._job_id = "job-7"

    @property
    def state(self) -> str:
        return self._states[0] if len(self._states) == 1 else self._states.pop(0)

    def run(self) -> Remote:
        return self

    def wait_until_finish(self) -> None:
        time.sleep(0.1)


def test_remote_jobs_show_link_and_state(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.02)
    options = pipeline_options(["--runner=FlinkRunner", "--flink_master=host:8081"])
    run_pipeline(Remote(["RUNNING", "RUNNING", "DONE"]), options, title="urls")
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "urls: submitted to FlinkRunner · http://host:8081 (job job-7)"
    assert said[1] == "urls: running"
    assert said[-1] == "urls: done"
    with pytest.raises(HushgramError, match="the job ended as FAILED; see the runner's log"):
        run_pipeline(Remote(["FAILED"]), options, title="urls", quiet=True)


def test_link_of_a_dataflow_job() -> None:
    places = [
        "--temp_location=gs://bucket/tmp",
        "--staging_location=gs://bucket/staging",
        "--region=europe-west1",
    ]
    options = pipeline_options(["--runner=DataflowRunner", "--project=a-project", *places])
    expected = "https://console.cloud.google.com/dataflow/jobs/europe-west1/job-7?project=a-project"
    assert job_link(Remote(["DONE"]), options) == expected
