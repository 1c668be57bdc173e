"""The log, the metrics file and the notification of a run, however it ends."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from pathlib import Path

import pytest

import hushgram.pipelines.run.logs as module
from hushgram.errors import InputError
from hushgram.pipelines.run.logs import JobLog
from hushgram.publishing import _umask


def series(path: Path) -> dict[str, float]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return {
        line.rpartition(" ")[0].removeprefix("hushgram_"): float(line.rpartition(" ")[2]) for line in lines
    }


def succeed(job: str, path: Path) -> None:
    with JobLog(job, "text", path, dataset="views") as log:
        log.finish(output="out")


def fail(path: Path, error: BaseException, job: str = "release") -> None:
    with pytest.raises(type(error)), JobLog(job, "text", path, dataset="views"):
        raise error


def test_jobs_share_a_metrics_file(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    succeed("top", path)
    before = series(path)
    fail(path, InputError("no file"))
    after = series(path)
    assert before.items() <= after.items()
    assert after['last_run_exit_code{job="release",dataset="views"}'] == 3
    text = path.read_text()
    assert text.count("# TYPE hushgram_last_run_success gauge") == 1  # one group per metric
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()  # the node exporter is another user


def test_a_first_run_that_fails_is_as_old_as_can_be(tmp_path: Path) -> None:
    path, name = tmp_path / "m.prom", 'last_success_timestamp_seconds{job="release",dataset="views"}'
    fail(path, InputError("no file"))
    assert series(path)[name] == 0
    succeed("release", path)
    success = series(path)[name]
    fail(path, InputError("no file"))
    assert series(path)[name] == success > 0


def test_the_signal_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "stopped_by", [int(signal.SIGTERM)])
    fail(tmp_path / "m.prom", KeyboardInterrupt())
    assert series(tmp_path / "m.prom")['last_run_exit_code{job="release",dataset="views"}'] == 143


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InputError("no file"), 3, "no file"),
        (KeyboardInterrupt(), 130, "stopped"),
        (ZeroDivisionError("1 / 0"), 1, "ZeroDivisionError: 1 / 0"),
    ],
)
def test_the_last_line_is_json(
    error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, JobLog("release", "json"):
        raise error
    assert ended.value.code == code
    last = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (last["event"], last["message"], last["exit_code"]) == ("error", message, code)


def notifier(tmp_path: Path) -> str:
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    return shlex.join([sys.executable, "-c", code, str(tmp_path / "told")])


def test_a_command_is_told_how_a_run_ended(tmp_path: Path) -> None:
    with JobLog("release", "text", None, notifier(tmp_path), dataset="views", release="monday") as log:
        log.finish(output="out/a.sketch", digest="ab", epsilon="1", engine_job=None)
    told = json.loads((tmp_path / "told").read_text())
    del told["time"]
    assert told == {
        "event": "finished", "job": "release", "dataset": "views", "release": "monday", "exit_code": 0,
        "output": "out/a.sketch", "digest": "ab", "epsilon": "1",
    }  # fmt: skip


def test_a_notification_has_no_exact_number(tmp_path: Path) -> None:
    error = InputError("17 of 40 records are rejected")
    with pytest.raises(InputError), JobLog("release", "text", None, notifier(tmp_path)):
        raise error
    told = (tmp_path / "told").read_text()
    assert json.loads(told)["error"] == "InputError"
    assert "17" not in told.partition('"event"')[2]


def test_a_notified_command_does_not_see_the_wrapping_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSHGRAM_WRAP_KEY", "ab" * 32)
    code = "import os, sys, pathlib; pathlib.Path(sys.argv[1]).write_text(' '.join(os.environ))"
    command = shlex.join([sys.executable, "-c", code, str(tmp_path / "told")])
    with JobLog("release", "text", None, command) as log:
        log.finish()
    seen = (tmp_path / "told").read_text().split()
    assert "PATH" in seen
    assert "HUSHGRAM_WRAP_KEY" not in seen


@pytest.mark.parametrize("command", ["false", "/nowhere/at-all", "'", ""])
def test_a_command_that_fails_changes_nothing(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with JobLog("release", "text", None, command) as log:
        log.finish()
    said = capsys.readouterr().err
    assert said.startswith("warning: --notify") if command else said == ""
