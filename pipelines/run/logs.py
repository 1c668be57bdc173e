"""Logs, metrics and notifications of scheduled jobs: lines on standard error, a file for Prometheus, a command.

    @click.command()
    @log_options
    def command(..., log: str, metrics: str | None, notify: str | None) -> None:
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
import fcntl
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
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


_SERIES = re.compile(
    rf'hushgram_(?P<name>{"|".join(_METRICS)})\{{(?P<labels>job="[^\n]*")\}} (?P<value>[-+.\deE]+)'
)
_NOTIFY_SECONDS = 60.0


def log_options(command: C) -> C:
    """Add ``--log``, ``--metrics`` and ``--notify`` to a job's command, passed under these names."""
    for add in (
        click.option(
            "--notify", metavar="COMMAND", envvar="HUSHGRAM_NOTIFY",
            help="Run COMMAND after the run, with its outcome as JSON on standard input.",
        ),
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
        notify: str | None = None,
        *,
        dataset: str | None = None,
        release: str | None = None,
    ) -> None:
        self.is_json, self._metrics, self._notify = mode == "json", metrics, notify
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
                self._run_notify(code, error)
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

    def _run_notify(self, code: int, error: BaseException | None) -> None:
        """Tell the operator's command how the run ended. Messages are left out: they may hold exact numbers."""
        if not self._notify or (error is None and self._finished is None):
            return
        names = {name: value for name, value in self._names.items() if value is not None}
        outcome = {"event": "error", "error": type(error).__name__} if error else {"event": "finished"}
        fields = {
            "time": _timestamp(time.time()),
            **outcome,
            **names,
            "exit_code": code,
            **(self._finished or {}),
        }
        try:
            parts, line = shlex.split(self._notify), json_text(fields) + "\n"
            told = {name: value for name, value in os.environ.items() if name != "HUSHGRAM_WRAP_KEY"}
            done = subprocess.run(
                parts,
                input=line.encode(),
                timeout=_NOTIFY_SECONDS,
                stdout=subprocess.DEVNULL,
                check=False,
                env=told,
            )
            problem = f"exit code {done.returncode}" if done.returncode else None
        except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as failure:
            problem = getattr(failure, "strerror", None) or type(failure).__name__
        if problem is not None:
            raise OutputError(f"--notify {self._notify} failed: {problem}")

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
        # A run that never succeeded has the time 0, so that an alert on the age of the last success fires.
        success = "last_success_timestamp_seconds"
        with _locked(path):
            before = _series(path)
            old = before.get(success, {}).get(labels, "0")
            values[success] = now if code == 0 else float(old)
            for name, value in values.items():
                before.setdefault(name, {})[labels] = str(value)
            lines = [
                f"# HELP hushgram_{name} {meaning}\n# TYPE hushgram_{name} gauge\n"
                + "".join(f"hushgram_{name}{{{each}}} {value}\n" for each, value in before[name].items())
                for name, meaning in _METRICS.items()
                if name in before
            ]
            replace_file("--metrics", path, "".join(lines).encode())


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


def _series(path: Path) -> dict[str, dict[str, str]]:
    """Return the series of an earlier file, name → labels → value: jobs that share a file keep one another's."""
    found: dict[str, dict[str, str]] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            if match := _SERIES.fullmatch(line):
                found.setdefault(match["name"], {})[match["labels"]] = match["value"]
    return found


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one job at a time change a file: hold a lock on its directory."""
    try:
        handle = os.open(path.parent, os.O_RDONLY)
    except OSError as problem:
        raise OutputError(f"--metrics {path} cannot be written: {problem.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def check_writable(option: str, path: str | Path | None) -> None:
    """Refuse, before anything runs, a file that could not be written at the end."""
    if path is not None:
        replace_file(option, path, None)
