"""The display: plain lines without a terminal, a live one on it, errors of workers in one line."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from hushgram.errors import HushgramError, InputError, OutputError, ParameterError
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.run import progress as module
from hushgram.pipelines.run.beam_runners import LOCAL, is_local, new_pipeline, pipeline_options, worker_count
from hushgram.pipelines.run.progress import Progress, job_link, run_pipeline, show_progress, steps_of
from hushgram.pipelines.terminal import EXACT
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.transforms.read_records import PROGRESS_FILE, TICK
from hushgram.transforms.release_sparse_histogram import ReleaseSparseHistogram


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def tick(rows: int, rejected: int, size: int) -> None:
    with open(os.environ[PROGRESS_FILE], "ab") as file:
        file.write(TICK.pack(rows, rejected, size))


def test_sums_ticks_and_cleans_up() -> None:
    assert PROGRESS_FILE not in os.environ
    with show_progress(Progress("job", 100), quiet=True) as progress:
        path = os.environ[PROGRESS_FILE]
        tick(10, 1, 40)
        tick(5, 0, 20)
        progress.collect()
        assert (progress.rows, progress.rejected, progress.size) == (15, 1, 60)
        progress.step = "read records"
        assert f"15 rows ({EXACT})" in progress.line()
        assert "60 bytes of 100 bytes" in progress.line()
    assert not os.path.exists(path)
    assert PROGRESS_FILE not in os.environ


def test_quiet_where_there_is_no_terminal_and_nothing_takes_long() -> None:
    out = io.StringIO()
    with show_progress(Progress("job", 100), file=out):
        tick(10, 0, 40)
    assert out.getvalue() == ""


def wait_for(seen: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.01)


def test_plain_lines_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PLAIN_SECONDS", 0.01)
    out = io.StringIO()
    with show_progress(Progress("job", 100), file=out):
        tick(1234, 0, 40)
        wait_for(lambda: "1,234 rows" in out.getvalue())
    lines = [line for line in out.getvalue().splitlines() if "1,234 rows" in line]
    first = lines[0]  # a line before the tick was read may say less
    assert first.startswith("job: starting · 1,234 rows")
    assert "\x1b" not in out.getvalue()


def test_live_display_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REFRESH_SECONDS", 0.02)
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with show_progress(Progress("job", 100), file=out):
        tick(1234, 0, 40)
        wait_for(lambda: "1,234 rows" in out.getvalue())


def test_steps_are_the_transforms_of_the_pipeline() -> None:
    pipeline = new_pipeline(pipeline_options())
    params = ReleaseParams(epsilon="1", max_contributions=8)
    release = ReleaseSparseHistogram(
        params, user="user", key="key", path="out", release_key=ReleaseKey(bytes(32))
    )
    _ = pipeline | "Records" >> beam.Create([{"user": 1, "key": "a"}]) | "Release" >> release
    steps = steps_of(pipeline)
    assert steps["Release-Bound"] == "bound contributions"
    assert "write sketch" in steps.values()
    progress = Progress("job", steps=steps)
    for stage, step in {
        "((ref_AppliedPTransform_Records-Impulse_3)+(Release/Bound/Group/Write))": "bound contributions",
        "(ref_AppliedPTransform_Release-Release-WriteSketch-Publish_9)": "write sketch",
        "(ref_AppliedPTransform_Other-Bound_1)": "write sketch",  # not a step: no change
    }.items():
        progress.enter_stage(stage)
        assert progress.step == step


def test_a_run_shows_its_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[str] = []

    def enter(progress: Progress, stage: str) -> None:
        before(progress, stage)
        seen.append(progress.step)

    before = Progress.enter_stage
    monkeypatch.setattr(Progress, "enter_stage", enter)
    options = pipeline_options()
    pipeline = new_pipeline(options)
    params = ReleaseParams(epsilon="1", max_contributions=8)
    release = ReleaseSparseHistogram(
        params, user="user", key="key", path=tmp_path / "a.sketch", release_key=ReleaseKey(bytes(32))
    )
    _ = pipeline | "Records" >> beam.Create([{"user": 1, "key": "a"}]) | "Release" >> release
    run_pipeline(pipeline, options, title="t", quiet=True)
    assert {"bound contributions", "encode counts", "write sketch"} <= set(seen)


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
    with pytest.raises(OutputError) as caught, module._unwrapped_errors():
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
        wait_for(lambda: len(self._states) == 1)


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
    assert job_link(Remote(["DONE"]), options, "DataflowRunner") == expected
