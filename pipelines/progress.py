"""Seeing a job work: stage, rows and bytes on the local runner; link and state on a remote one.

`run_pipeline` runs a pipeline and shows it on standard error: as a live line on a terminal, as a plain line
from time to time elsewhere, or not at all. Row counts are exact and private; the display says so, and nothing
of it is written to a file of the release.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import hushgram.errors as errors
from hushgram.pipelines.console import say
from hushgram.pipelines.run_directory import active_directory
from hushgram.pipelines.runners import is_local
from hushgram.pipelines.table_output import human_bytes
from hushgram.transforms.read_records import PROGRESS_FILE, TICK

__all__ = ["EXACT", "Progress", "read_counters", "run_pipeline", "stage_words"]

EXACT = "exact, not for publication"

_BUNDLES = "apache_beam.runners.portability.fn_api_runner.fn_runner.run_bundle"
# Trouble of the system in a worker: no permission, too many open files, a full disk, read-only, over quota.
_DISK = re.compile(r"(?:\[Errno (?:13|23|24|28|30|122)\] )([^\[\n]{1,300}?)(?: \[while running|\\n|\n|$)")
_PLAIN_SECONDS = 30.0
_REFRESH_SECONDS = 0.2
_POLL_SECONDS = 2.0

# Words for what a fused stage does: the first of these labels that occurs in its name.
_STAGES = (
    ("ReadItem", "reading"),
    ("Bound", "bounding contributions"),
    ("Hold", "bounding contributions"),
    ("Choose", "choosing max_contributions"),
    ("Count", "counting"),
    ("Histogram", "counting"),
    ("Siz", "sizing"),
    ("Threshold", "threshold release"),
    ("Project", "projection"),
    ("Alp", "projection"),
    ("Randomi", "randomized response"),
    ("Sketch", "writing the sketch"),
)


def stage_words(stage: str) -> str | None:
    """The user's word for a stage of the runner, or None where it is only plumbing."""
    found = [(stage.find(label), words) for label, words in _STAGES if label in stage]
    return min(found)[1] if found else None


class Progress:
    """Collects what readers report and shows it; a context manager around the run.

    `total` is the number of bytes to read, None where it is not known.
    """

    def __init__(
        self, title: str, total: int | None = None, *, quiet: bool = False, file: Any = None
    ) -> None:
        self.title, self.total, self.quiet = title, total, quiet
        self.rows = self.bad = self.size = 0
        self.stage = "starting"
        self._file = file if file is not None else sys.stderr
        self._stop = threading.Event()
        self._began = self._said = 0.0
        self._offset = 0
        self._before: str | None = None

    def __enter__(self) -> Self:
        self._began = self._said = time.monotonic()
        handle, self._path = tempfile.mkstemp(prefix="hushgram-progress-", dir=active_directory())
        os.close(handle)
        self._before = os.environ.get(PROGRESS_FILE)
        os.environ[PROGRESS_FILE] = self._path
        self._handler = _Stages(self)
        logger = logging.getLogger(_BUNDLES)
        self._logger_state = (logger.level, logger.propagate)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(self._handler)
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)
        if not self.quiet:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        logger = logging.getLogger(_BUNDLES)
        logger.removeHandler(self._handler)
        logger.level, logger.propagate = self._logger_state
        self.collect()
        if self._before is None:
            os.environ.pop(PROGRESS_FILE, None)
        else:
            os.environ[PROGRESS_FILE] = self._before
        os.unlink(self._path)

    def collect(self) -> None:
        """Adds what readers have appended since the last call."""
        with open(self._path, "rb") as ticks:
            ticks.seek(self._offset)
            data = ticks.read()
        whole = len(data) - len(data) % TICK.size
        for rows, bad, size in TICK.iter_unpack(data[:whole]):
            self.rows, self.bad, self.size = self.rows + rows, self.bad + bad, self.size + size
        self._offset += whole

    def line(self, *, short: bool = False) -> str:
        """The state in one line; `short` fits a terminal of 80 columns beside a bar."""
        seconds = max(time.monotonic() - self._began, 1e-3)
        parts = [self.stage if short else f"{self.title}: {self.stage}"]
        if self.rows:
            parts.append(f"{self.rows:,} rows ({'exact' if short else EXACT})")
            if self.stage == "reading":
                parts.append(f"{self.rows / seconds:,.0f}/s")
        if self.size and self.total:
            parts.append(f"{human_bytes(min(self.size, self.total))} of {human_bytes(self.total)}")
        parts.append(f"{seconds:.0f} s")
        return " · ".join(parts)

    def _show(self) -> None:
        if self._file.isatty():
            self._show_live()
            return
        while not self._stop.wait(_REFRESH_SECONDS):
            if time.monotonic() - self._said >= _PLAIN_SECONDS:
                self._said = time.monotonic()
                self.collect()
                say(self.line(), file=self._file)

    def _show_live(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        def view() -> Table:
            self.collect()
            grid = Table.grid(padding=(0, 1))
            share = min(self.size, self.total) if self.total else 0
            grid.add_row(
                ProgressBar(total=self.total or None, completed=share, width=10), self.line(short=True)
            )
            return grid

        console = Console(file=self._file, highlight=False)
        with Live(view(), console=console, transient=True, auto_refresh=False) as live:
            while not self._stop.wait(_REFRESH_SECONDS):
                live.update(view(), refresh=True)


class _Stages(logging.Handler):
    """Beam's in-process runner says in its debug log which stage it runs; there is no other way to know."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.DEBUG)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, str) and record.msg.startswith("Running bundle for stage") and record.args:
            words = stage_words(str(record.args[0])) if isinstance(record.args, tuple) else None
            if words is not None:
                self._progress.stage = words


def run_pipeline(
    pipeline: Any, options: Any, *, title: str, total_bytes: int | None = None, quiet: bool = False
) -> Any:
    """Runs `pipeline` to its end and returns Beam's result.

    An error that a worker raised as a `HushgramError` comes back as that error, in one line.
    """
    with _users_errors():
        if is_local(options):
            with Progress(title, total_bytes, quiet=quiet), _silent("apache_beam.runners"):
                result = pipeline.run()
                result.wait_until_finish()
            return result
        result = _submitted(pipeline, options)
        _watch(result, options, title, quiet)
        return result


def _submitted(pipeline: Any, options: Any) -> Any:
    """An engine that cannot be reached, or a job server that does not start, is one line."""
    import grpc  # type: ignore[import-untyped]

    try:
        return pipeline.run()
    except (RuntimeError, OSError, grpc.RpcError, grpc.FutureTimeoutError) as problem:
        if "hushgram.errors." in str(problem):
            raise
        reason = (str(problem).strip().splitlines() or ["no answer"])[0]
        raise errors.HushgramError(
            f"{_runner_name(options)} did not take the job: {reason}; see the engine's log and the options after --"
        ) from None


def _watch(result: Any, options: Any, title: str, quiet: bool) -> None:
    """Link and state of a remote job, a line for each change."""

    def tell(text: str) -> None:
        if not quiet:
            say(f"{title}: {text}", err=True)

    link = job_link(result, options)
    tell(f"submitted to {_runner_name(options)}" + (f" · {link}" if link else ""))
    outcome: list[BaseException] = []
    waiter = threading.Thread(target=_wait, args=(result, outcome), daemon=True)
    waiter.start()
    state = None
    while waiter.is_alive():
        now = str(result.state)
        if now != state:
            tell(now.lower())
            state = now
        waiter.join(_POLL_SECONDS)
    if outcome:
        raise outcome[0]
    if str(result.state) not in ("DONE", "UPDATED", "DRAINED"):
        raise errors.HushgramError(
            f"{title}: the job ended as {result.state}; see the runner's log. Nothing was published"
        )
    tell(str(result.state).lower())


def _wait(result: Any, outcome: list[BaseException]) -> None:
    try:
        result.wait_until_finish()
    except BaseException as problem:  # handed to the thread that waits
        outcome.append(problem)


def job_link(result: Any, options: Any) -> str | None:
    """Where to look at a remote job, as far as the runner tells."""
    every = options.get_all_options()
    job = getattr(result, "job_id", None)
    job = job() if callable(job) else job or getattr(result, "_job_id", None)
    if every.get("project") and job and "dataflow" in _runner_name(options).lower():
        region = every.get("region") or "us-central1"
        return f"https://console.cloud.google.com/dataflow/jobs/{region}/{job}?project={every['project']}"
    master = every.get("flink_master")
    if master and not str(master).startswith("["):
        return f"{master if '://' in str(master) else 'http://' + str(master)} (job {job})"
    return f"job {job}" if job else None


def _runner_name(options: Any) -> str:
    return str(options.get_all_options().get("runner") or "DirectRunner").rsplit(".", 1)[-1]


@contextlib.contextmanager
def _silent(name: str) -> Iterator[None]:
    """Beam logs the traceback of every failure that it then raises; once is enough."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(max(level, logging.CRITICAL))
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _users_errors() -> Iterator[None]:
    """Beam wraps what a worker raises into a RuntimeError with its traceback; find our own error in it."""
    try:
        yield
    except errors.HushgramError as problem:
        raise type(problem)(str(problem).split(" [while running", 1)[0]) from None
    except Exception as problem:
        if str(problem).startswith("KeyboardInterrupt [while running"):
            raise KeyboardInterrupt from None  # Ctrl-C inside of a stage
        found = re.findall(r"hushgram\.errors\.(\w+): (.+?)(?: \[while running|\n|\\n|$)", str(problem))
        if not found and (trouble := _DISK.search(str(problem))):
            raise errors.OutputError(f"the job cannot write its files: {trouble[1]}") from None
        if not found:
            raise
        kind = getattr(errors, found[-1][0], errors.HushgramError)
        raise kind(found[-1][1].strip()) from None


def read_counters(result: Any) -> dict[str, int]:
    """Our counters of a finished job: rows, bytes, bad, and each reason. Exact: for the operator alone."""
    from apache_beam.metrics.metric import MetricsFilter

    try:
        found = result.metrics().query(MetricsFilter().with_namespace("hushgram"))["counters"]
    except (NotImplementedError, KeyError, AttributeError):
        return {}  # a runner without metrics
    totals: dict[str, int] = {}
    for counter in found:
        name = counter.key.metric.name
        value = counter.committed if counter.committed is not None else counter.attempted
        totals[name] = totals.get(name, 0) + int(value or 0)
    return totals
