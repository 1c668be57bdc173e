"""What a scheduled job tells its operator: log lines on standard error, and a metrics file for Prometheus.

    @click.command()
    @log_options
    def command(..., log: str, metrics: str | None) -> None:
        with JobLog("release", log, metrics, dataset="pageviews", release="urls-2026-11-15") as out:
            out.say("started", "reading 3 files", files=3)
            ...
            out.result(run.summary)

With ``--log json`` every line, an error too, is one JSON object with time, level, event, job, release and
message; the exit codes stay the same. Numbers marked private are exact: they are for the operator, inside the
same walls as the data. A release key is never logged: its text form shows nothing.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hushgram.errors import HushgramError, OutputError
from hushgram.pipelines.console import json_text, say
from hushgram.publishing import put_file

if TYPE_CHECKING:
    from hushgram.ledger import Summary

__all__ = ["JobLog", "JsonFormatter", "check_writable", "log_options"]

C = TypeVar("C", bound=Callable[..., Any])

_METRICS = (
    ("hushgram_last_run_timestamp_seconds", "When the last run ended."),
    ("hushgram_last_success_timestamp_seconds", "When the last run that succeeded ended."),
    ("hushgram_last_run_success", "1 if the last run succeeded, else 0."),
    ("hushgram_last_run_exit_code", "Exit code of the last run."),
    ("hushgram_last_run_duration_seconds", "How long the last run took."),
    ("hushgram_budget_epsilon", "Epsilon of the data set's whole budget."),
    ("hushgram_budget_epsilon_spent", "Epsilon spent, at the budget's delta; an upper bound."),
    ("hushgram_budget_epsilon_left", "Epsilon left."),
    ("hushgram_budget_releases_left", "How many more releases like the last one fit (counted to 1000)."),
)
_LAST_SUCCESS = "hushgram_last_success_timestamp_seconds"


def log_options(command: C) -> C:
    """Adds ``--log`` and ``--metrics`` to a job's command (as arguments `log` and `metrics`)."""
    command = click.option(
        "--metrics",
        metavar="FILE",
        envvar="HUSHGRAM_METRICS",
        help="Write Prometheus metrics of this run to FILE (name it *.prom for the node exporter).",
    )(command)
    return click.option(
        "--log",
        type=click.Choice(["text", "json"]),
        default="text",
        envvar="HUSHGRAM_LOG",
        help="Lines for people, or one JSON object a line, on standard error.",
    )(command)


class JsonFormatter(logging.Formatter):
    """One JSON object a line, for records of Python's logging (Beam writes those)."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _now(record.created),
            "level": record.levelname.lower(),
            "event": "log",
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json_text(fields)


class JobLog:
    """The log of one run: says what happens, and writes the metrics file when the run ends, well or not."""

    def __init__(
        self,
        job: str,
        mode: str = "text",
        metrics: str | Path | None = None,
        *,
        dataset: str | None = None,
        release: str | None = None,
    ) -> None:
        self._job, self._mode, self._metrics = job, mode, metrics
        self._names = {"job": job, "dataset": dataset, "release": release}
        self._begun = time.monotonic()
        self._values: dict[str, float] = {}
        self._restore: Callable[[], None] = lambda: None

    def __enter__(self) -> JobLog:
        check_writable("--metrics", self._metrics)
        if self._mode == "json":
            self._restore = _log_as_json()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        code = _exit_code(error)
        seconds = round(time.monotonic() - self._begun, 3)
        try:
            try:
                self._write_metrics(code, seconds)
            except OutputError as problem:  # the run has ended as it has ended
                self.say("warning", f"warning: {problem}", level="warning")
            if self._mode == "json" and error is None:
                self.say("finished", "finished", seconds=seconds)
            elif self._mode == "json" and isinstance(error, HushgramError):
                self.say("error", str(error), level="error", exit_code=code, seconds=seconds)
                raise SystemExit(code) from error
        finally:
            self._restore()

    def say(self, event: str, message: str, level: str = "info", **fields: Any) -> None:
        """One line; `fields` appear in JSON alone."""
        if self._mode == "json":
            names = {name: value for name, value in self._names.items() if value is not None}
            line = {"time": _now(), "level": level, "event": event, **names, "message": message, **fields}
            message = json_text(line)
        say(message, err=True)

    def notes(self, notes: Iterable[str]) -> None:
        """The notes of a `Run`."""
        for note in notes:
            self.say("budget", note)

    def result(self, summary: Summary | None) -> None:
        """Numbers for the metrics file: the budget after the run. Exact numbers are not among them."""
        if summary is not None:
            for name, text in (
                ("hushgram_budget_epsilon", summary.budget_epsilon),
                ("hushgram_budget_epsilon_spent", summary.spent_epsilon),
                ("hushgram_budget_epsilon_left", summary.left_epsilon),
            ):
                self._values[name] = float(Fraction(text))
            if summary.more is not None:
                self._values["hushgram_budget_releases_left"] = summary.more

    def _write_metrics(self, code: int, seconds: float) -> None:
        if self._metrics is None:
            return
        path, now = Path(self._metrics), time.time()
        labels = f'{{job="{_label(self._job)}",dataset="{_label(self._names["dataset"] or "")}"}}'
        success = now if code == 0 else _earlier(path, _LAST_SUCCESS + labels)
        values: dict[str, float | None] = {
            "hushgram_last_run_timestamp_seconds": round(now, 3),
            _LAST_SUCCESS: None if success is None else round(success, 3),
            "hushgram_last_run_success": int(code == 0),
            "hushgram_last_run_exit_code": code,
            "hushgram_last_run_duration_seconds": seconds,
            **self._values,
        }
        lines = []
        for name, meaning in _METRICS:
            value = values.get(name)
            if value is not None:
                lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", f"{name}{labels} {value}"]
        _replace(path, "\n".join(lines) + "\n")


def _exit_code(error: BaseException | None) -> int:
    if error is None:
        return 0
    if isinstance(error, HushgramError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return 130
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 1


def _now(seconds: float | None = None) -> str:
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _log_as_json() -> Callable[[], None]:
    """Sends Python's logging to standard error as JSON; returns how to undo it."""
    root = logging.getLogger()
    before = root.handlers[:]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root.handlers[:] = [handler]

    def restore() -> None:
        root.handlers[:] = before

    return restore


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _earlier(path: Path, series: str) -> float | None:
    """The value that the last file has for a series, so that a failure does not forget the last success."""
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            if line.startswith(f"{series} "):
                return float(line.rpartition(" ")[2])
    return None


def check_writable(option: str, path: str | Path | None) -> None:
    """Refuses a file that could not be written at the end, before anything is run."""
    if path is not None:
        _replace(Path(path), None, option)


def _replace(path: Path, text: str | None, option: str = "--metrics") -> None:
    """Writes a file that is for its owner alone until an operator widens that; without a text, only tries."""
    try:
        put_file(path, None if text is None else text.encode(), private=True)
    except OSError as problem:
        raise OutputError(f"{option} {path} cannot be written: {problem.strerror}") from None
