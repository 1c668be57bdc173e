"""Logs and metrics of scheduled jobs: lines on standard error, and a metrics file for Prometheus.

    @click.command()
    @log_options
    def command(..., log: str, metrics: str | None) -> None:
        with JobLog("release", log, metrics, dataset="pageviews", release="urls-2026-11-15") as job_log:
            job_log.write("started", "reading 3 files", files=3)
            ...
            job_log.result(run.summary)

With ``--log json`` every line, an error too, is one JSON object with time, level, event, job, release and message; the
exit codes stay the same. Exact numbers are for the operator, who may see the data. A release key is never logged: its
text form shows nothing.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hushgram.errors import HushgramError, OutputError
from hushgram.pipelines.terminal import json_text, print_line, replace_file

if TYPE_CHECKING:
    from hushgram.ledger import Summary

__all__ = ["JobLog", "JsonFormatter", "check_writable", "log_options", "stopped_by"]

#: the signal that ends this process, once it has come
stopped_by: list[int] = []
C = TypeVar("C", bound=Callable[..., Any])

# name without the prefix hushgram_ → help
_METRICS = {
    "last_run_timestamp_seconds": "When the last run ended.",
    "last_success_timestamp_seconds": "When the last successful run ended.",
    "last_run_success": "1 if the last run succeeded, else 0.",
    "last_run_exit_code": "Exit code of the last run.",
    "last_run_duration_seconds": "Duration of the last run.",
    "budget_epsilon": "Epsilon of the data set's whole budget.",
    "budget_epsilon_spent": "Epsilon spent, at the budget's delta; an upper bound.",
    "budget_epsilon_left": "Epsilon left.",
    "budget_releases_left": "Number of further releases like the last one that fit (counted to 1000).",
}


def log_options(command: C) -> C:
    """Add ``--log`` and ``--metrics`` to a job's command, passed as `log` and `metrics`."""
    for add in (
        click.option(
            "--metrics", metavar="FILE", envvar="HUSHGRAM_METRICS",
            help="Write Prometheus metrics of this run to FILE (name it *.prom for the node exporter).",
        ),
        click.option(
            "--log", type=click.Choice(["text", "json"]), default="text", envvar="HUSHGRAM_LOG",
            help="Log to standard error as text, or as one JSON object per line.",
        ),
    ):  # fmt: skip
        command = add(command)
    return command


class JsonFormatter(logging.Formatter):
    """Format records of Python's logging (Beam writes these) as one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _timestamp(record.created),
            "level": record.levelname.lower(),
            "event": "log",
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json_text(fields)


class JobLog:
    """The log of one run: writes lines, and the metrics file when the run ends, with success or not."""

    def __init__(
        self,
        job: str,
        mode: str = "text",
        metrics: str | Path | None = None,
        *,
        dataset: str | None = None,
        release: str | None = None,
    ) -> None:
        self.is_json, self._metrics = mode == "json", metrics
        self._names = {"job": job, "dataset": dataset, "release": release}
        self._started = time.monotonic()
        self._values: dict[str, float] = {}
        self._finished: dict[str, Any] | None = None
        self._handlers: list[logging.Handler] | None = None

    def __enter__(self) -> JobLog:
        check_writable("--metrics", self._metrics)
        if self.is_json:  # Python's logging too
            root = logging.getLogger()
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(JsonFormatter())
            self._handlers, root.handlers[:] = root.handlers[:], [handler]
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        code = _exit_code(error)
        seconds = round(time.monotonic() - self._started, 3)
        try:
            try:
                self._write_metrics(code, seconds)
            except OutputError as problem:  # does not change how the run ended
                self.write("warning", f"warning: {problem}", level="warning")
            if self.is_json and error is None and self._finished is not None:
                self.write("finished", "finished", seconds=seconds, **self._finished)
            elif self.is_json and isinstance(error, Exception | KeyboardInterrupt):
                fields: dict[str, Any] = {"exit_code": code, "seconds": seconds}
                message = str(error) if isinstance(error, HushgramError) else "stopped"
                if isinstance(error, Exception) and not isinstance(error, HushgramError):  # a bug
                    message = f"{type(error).__name__}: {error}"
                    fields["exception"] = "".join(traceback.format_exception(error))
                self.write("error", message, level="error", **fields)
                raise SystemExit(code) from error
        finally:
            if self._handlers is not None:
                logging.getLogger().handlers[:] = self._handlers

    def write(self, event: str, message: str, level: str = "info", **fields: Any) -> None:
        """Write one line; `fields` appear in JSON only."""
        if self.is_json:
            names = {name: value for name, value in self._names.items() if value is not None}
            stamp = _timestamp(time.time())
            line = {"time": stamp, "level": level, "event": event, **names, "message": message, **fields}
            message = json_text(line)
        print_line(message, err=True)

    def finish(self, **fields: Any) -> None:
        """Keep what the last line of the run says in JSON: public figures only."""
        self._finished = {name: value for name, value in fields.items() if value is not None}

    def result(self, summary: Summary | None) -> None:
        """Keep the budget after the run for the metrics file. No exact number of the data is in it."""
        if summary is not None:
            self._values = {
                "budget_epsilon": float(Fraction(summary.budget_epsilon)),
                "budget_epsilon_spent": float(Fraction(summary.spent_epsilon)),
                "budget_epsilon_left": float(Fraction(summary.left_epsilon)),
            }
            if summary.more is not None:
                self._values["budget_releases_left"] = summary.more

    def _write_metrics(self, code: int, seconds: float) -> None:
        if self._metrics is None:
            return
        path, now = Path(self._metrics), round(time.time(), 3)
        labels = ",".join(f'{name}="{_label(self._names[name] or "")}"' for name in ("job", "dataset"))
        values = {
            "last_run_timestamp_seconds": now,
            "last_run_success": int(code == 0),
            "last_run_exit_code": code,
            "last_run_duration_seconds": seconds,
            **self._values,
        }
        success = "last_success_timestamp_seconds"
        last = now if code == 0 else _previous(path, f"hushgram_{success}{{{labels}}}")
        if last is not None:
            values[success] = last
        lines = [
            f"# HELP hushgram_{name} {meaning}\n# TYPE hushgram_{name} gauge\n"
            f"hushgram_{name}{{{labels}}} {values[name]}\n"
            for name, meaning in _METRICS.items()
            if name in values
        ]
        # Only its owner can read the file, unless an operator has changed the mode of an earlier one.
        replace_file("--metrics", path, "".join(lines).encode(), private=True)


def _exit_code(error: BaseException | None) -> int:
    if error is None:
        return 0
    if isinstance(error, HushgramError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return 128 + (stopped_by or [signal.SIGINT])[0]
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 1


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _previous(path: Path, series: str) -> float | None:
    """Return the value of a series in the previous file, so that a failure keeps the time of the last success."""
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            if line.startswith(f"{series} "):
                return float(line.rpartition(" ")[2])
    return None


def check_writable(option: str, path: str | Path | None) -> None:
    """Refuse, before anything runs, a file that could not be written at the end."""
    if path is not None:
        replace_file(option, path, None, private=True)
