"""Run a pipeline and show its progress: step, rows and bytes on the local runner; link and state on a remote one.

Progress goes to standard error: a live line on a terminal, a plain line from time to time elsewhere, or nothing. Row
counts are exact and private; the display says so, and nothing of it is written to a file of the release.
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
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from apache_beam.metrics.metric import MetricsFilter
from apache_beam.pipeline import PipelineVisitor

import hushgram.errors as errors
from hushgram.pipelines.run.beam_runners import is_local
from hushgram.pipelines.run.engine_jobs import ENDED, EngineJob, flink_job, name_job, runner_name, stop
from hushgram.pipelines.terminal import EXACT, file_size, print_line
from hushgram.publishing import active_directory
from hushgram.transforms.read_records import PROGRESS_FILE, TICK

__all__ = ["Progress", "read_counters", "run_pipeline", "show_progress", "steps_of"]

_log = logging.getLogger(__name__)
_BUNDLES = "apache_beam.runners.portability.fn_api_runner.fn_runner.run_bundle"
# System errors in a worker: no permission, too many open files, a full disk, read-only, over quota.
_DISK = re.compile(r"(?:\[Errno (?:13|23|24|28|30|122)\] )([^\[\n]{1,300}?)(?: \[while running|\\n|\n|$)")
_PLAIN_SECONDS = 30.0
_REFRESH_SECONDS = 0.2
_POLL_SECONDS = 2.0
# Flink is asked more often at first: every fifth of a second, then after a fortieth of the time that the job has taken.
_LEAST_POLL, _POLLS = 0.2, 40


class Progress:
    """What a local job has read so far, and the step it is at.

    Args:
        title: Name of the job.
        total: Bytes to read, None if unknown.
        steps: The steps of its pipeline (`steps_of`).
    """

    def __init__(self, title: str, total: int | None = None, steps: dict[str, str] | None = None) -> None:
        self.title, self.total, self._steps = title, total, steps or {}
        self.rows = self.rejected = self.size = 0
        self.step = "starting"
        self._started = time.monotonic()
        self._offset = 0

    def collect(self) -> None:
        """Add what readers have appended to `PROGRESS_FILE` since the last call."""
        with open(os.environ[PROGRESS_FILE], "rb") as ticks:
            ticks.seek(self._offset)
            data = ticks.read()
        whole = len(data) - len(data) % TICK.size
        for rows, rejected, size in TICK.iter_unpack(data[:whole]):
            self.rows, self.rejected, self.size = self.rows + rows, self.rejected + rejected, self.size + size
        self._offset += whole

    def enter_stage(self, stage: str) -> None:
        """Note the step that a stage of the runner (transforms fused into one) begins with."""
        for transform in re.findall(r"[^()+]+", stage):
            label = _plain(transform.removeprefix("ref_AppliedPTransform_"))
            if found := [step for step in self._steps if f"{label}-".startswith(f"{step}-")]:
                self.step = self._steps[max(found, key=len)]
                return

    def line(self, *, short: bool = False) -> str:
        """Return the state in one line; `short` fits a terminal of 80 columns beside a bar."""
        seconds = max(time.monotonic() - self._started, 1e-3)
        parts = [self.step if short else f"{self.title}: {self.step}"]
        if self.rows:
            parts.append(f"{self.rows:,} rows ({'exact' if short else EXACT})")
            if self.step == "read records":
                parts.append(f"{self.rows / seconds:,.0f}/s")
        if self.size and self.total:
            parts.append(f"{file_size(min(self.size, self.total))} of {file_size(self.total)}")
        parts.append(f"{seconds:.0f} s")
        return " · ".join(parts)


def steps_of(pipeline: Any) -> dict[str, str]:
    """Return the steps of a pipeline (the transforms of `hushgram.transforms`): label in stage names → name."""
    steps: dict[str, str] = {}

    class Visitor(PipelineVisitor):
        def enter_composite_transform(self, transform_node: Any) -> None:
            kind = type(transform_node.transform)
            stage = kind.__module__.startswith("hushgram.transforms.") and ".shuffle." not in kind.__module__
            if stage and not kind.__name__.startswith("_"):
                words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()
                steps[_plain(transform_node.full_label)] = words

    pipeline.visit(Visitor())
    return steps


def _plain(label: str) -> str:
    """Return a label as the runner writes it into the name of a stage."""
    return re.sub(r"[^A-Za-z0-9]+", "-", label)


@contextlib.contextmanager
def show_progress(progress: Progress, *, quiet: bool = False, file: Any = None) -> Iterator[Progress]:
    """Collect what readers and the runner report while the block runs, and show it unless `quiet`."""
    stop = threading.Event()
    before = os.environ.get(PROGRESS_FILE)
    thread = threading.Thread(target=_show, args=(progress, file or sys.stderr, stop), daemon=True)
    with tempfile.NamedTemporaryFile(prefix="hushgram-progress-", dir=active_directory()) as ticks:
        os.environ[PROGRESS_FILE] = ticks.name
        try:
            with _stages_reported_to(progress):
                if not quiet:
                    thread.start()
                yield progress
        finally:
            stop.set()
            if not quiet:
                thread.join()
            os.environ.pop(PROGRESS_FILE)
            if before is not None:
                os.environ[PROGRESS_FILE] = before


def _show(progress: Progress, file: Any, stop: threading.Event) -> None:
    if not file.isatty():
        while not stop.wait(_PLAIN_SECONDS):
            progress.collect()
            print_line(progress.line(), file=file)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = BarColumn(bar_width=10), TextColumn("{task.description}", markup=False)
    console = Console(file=file, highlight=False)
    with Bar(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=progress.total)
        while not stop.wait(_REFRESH_SECONDS):
            progress.collect()
            size = min(progress.size, progress.total or 0)
            bar.update(task, completed=size, description=progress.line(short=True), refresh=True)


@contextlib.contextmanager
def _stages_reported_to(progress: Progress) -> Iterator[None]:
    """Read the runner's debug log, the only place where Beam's in-process runner names the stage it runs."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if str(record.msg).startswith("Running bundle for stage") and isinstance(record.args, tuple):
                progress.enter_stage(str(record.args[0]))

    logger, handler = logging.getLogger(_BUNDLES), Handler()
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = level, propagate


def run_pipeline(
    pipeline: Any,
    options: Any,
    *,
    title: str,
    total_bytes: int | None = None,
    quiet: bool = False,
    on_job: Callable[[EngineJob | None], None] = lambda _: None,
) -> Any:
    """Run `pipeline` to its end and return Beam's result.

    Args:
        pipeline: The pipeline.
        options: Its options (`pipeline_options`).
        title: Name of the job.
        total_bytes: Bytes to read, None if unknown.
        quiet: Whether to show no progress.
        on_job: Called with the job on an engine once it is submitted, and with None once it has certainly ended.

    Raises:
        HushgramError: The error that a worker raised, in one line.
    """
    with _unwrapped_errors():
        if is_local(options):
            progress = Progress(title, total_bytes, steps_of(pipeline))
            with show_progress(progress, quiet=quiet), _silent("apache_beam.runners"):
                result = pipeline.run()
                result.wait_until_finish()
            return result
        with _servers_stopped(pipeline):
            result = _run_on_engine(pipeline, options, title, quiet, on_job)
            with contextlib.suppress(Exception):
                result.metrics()  # which Beam's result keeps
        return result


@contextlib.contextmanager
def _servers_stopped(pipeline: Any) -> Iterator[None]:
    """Stop the job servers that Beam starts for the pipeline.

    Beam stops them at the exit of the process, if their temporary files still exist; by then, those of a run do not.
    """
    runner, servers = getattr(pipeline, "runner", None), []
    make = getattr(runner, "default_job_server", None)

    def start(options: Any) -> Any:
        servers.append(make(options))  # type: ignore[misc]
        return servers[-1]

    if make is not None:
        runner.default_job_server = start  # type: ignore[union-attr]
    try:
        yield
    finally:
        for server in servers:
            server.stop()


def _run_on_engine(
    pipeline: Any, options: Any, title: str, quiet: bool, on_job: Callable[[EngineJob | None], None]
) -> Any:
    """Submit a job and wait for it; cancel it where this process is stopped or loses it."""
    held = getattr(pipeline, "options", options)  # Beam's pipelines have a copy
    job, result = EngineJob(runner_name(options), "", name_job(held, title)), None
    try:
        result = _submit(pipeline, options)
        job = replace(job, id=str(_id_of(result) or ""))
        on_job(job)
        _watch(result, options, title, quiet, job)
        on_job(None)
    except BaseException as problem:
        if result is None and not isinstance(problem, KeyboardInterrupt):
            raise  # not accepted
        if stop(job, options, result):
            on_job(None)
        else:
            _log.warning("warning: job %s may still run on %s; cancel it there", job.name, job.runner)
        raise
    return result


def _submit(pipeline: Any, options: Any) -> Any:
    """Submit the job; an engine that cannot be reached or a job server that does not start is one line."""
    import grpc  # type: ignore[import-untyped]

    try:
        return pipeline.run()
    except (RuntimeError, OSError, grpc.RpcError, grpc.FutureTimeoutError) as problem:
        if "hushgram.errors." in str(problem):
            raise
        reason = (str(problem).strip().splitlines() or ["no answer"])[0]
        raise errors.HushgramError(
            f"{runner_name(options)} did not accept the job: {reason}; see the engine's log and the options after --"
        ) from None


def _watch(result: Any, options: Any, title: str, quiet: bool, job: EngineJob) -> None:
    """Print link and state of a remote job, a line per change, until it ends."""

    def report(text: str) -> None:
        if not quiet:
            print_line(f"{title}: {text}", err=True)

    link = job_link(result, options, job.runner)
    report(f"submitted to {job.runner}" + (f" · {link}" if link else ""))
    states = _States(result, report)
    if (flink := flink_job(job, options)) is not None and _finished(flink, result, states):
        report("done")
        return
    failure: list[BaseException] = []
    waiter = threading.Thread(target=_wait, args=(result, failure), daemon=True)
    waiter.start()
    while waiter.is_alive():
        states.read()
        waiter.join(_POLL_SECONDS)
    if failure:
        raise failure[0]
    if str(result.state) not in ("DONE", "UPDATED", "DRAINED"):
        raise errors.HushgramError(
            f"{title}: the job ended as {result.state}; see the runner's log. Nothing was published"
        )
    report(str(result.state).lower())


class _States:
    """Reads the state of a job, and reports every change."""

    def __init__(self, result: Any, report: Callable[[str], None]) -> None:
        self._result, self._report, self._last = result, report, ""

    def read(self) -> str:
        """Return the state in Beam's words."""
        now = str(self._result.state)
        if now != self._last:
            self._report(now.lower())
            self._last = now
        return now


def _finished(flink: Any, result: Any, states: _States) -> bool:
    """Wait for a job of Flink; return False where only Beam's job server can say more.

    It says why a job failed, or was never submitted; and all, where Flink cannot be reached from here.
    """
    began = time.monotonic()
    with contextlib.suppress(Exception):
        while states.read() not in ENDED:
            if flink.finished(result):
                return True
            pause = max(_LEAST_POLL, (time.monotonic() - began) / _POLLS)
            time.sleep(min(pause, _POLL_SECONDS))
    return False


def _wait(result: Any, failure: list[BaseException]) -> None:
    try:
        result.wait_until_finish()
    except BaseException as problem:  # raised by the thread that waits
        failure.append(problem)


def _id_of(result: Any) -> Any:
    job = getattr(result, "job_id", None)
    return job() if callable(job) else job or getattr(result, "_job_id", None)


def job_link(result: Any, options: Any, runner: str) -> str | None:
    """Return a link to a remote job, or its id, if the runner provides one."""
    every, job = options.get_all_options(), _id_of(result)
    if every.get("project") and job and runner == "DataflowRunner":
        region = every.get("region") or "us-central1"
        return f"https://console.cloud.google.com/dataflow/jobs/{region}/{job}?project={every['project']}"
    master = every.get("flink_master")
    if master and not str(master).startswith("["):
        return f"{master if '://' in str(master) else 'http://' + str(master)} (job {job})"
    return f"job {job}" if job else None


@contextlib.contextmanager
def _silent(name: str) -> Iterator[None]:
    """Silence a logger: Beam logs the traceback of every failure that it then raises."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(max(level, logging.CRITICAL))
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _unwrapped_errors() -> Iterator[None]:
    """Raise our own error out of the RuntimeError with a traceback into which Beam wraps it."""
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
    """Return our counters of a finished job: rows, bytes, rejected, and each reason. Exact, for the operator only."""
    try:
        found = result.metrics().query(MetricsFilter().with_namespace("hushgram"))["counters"]
    except (NotImplementedError, KeyError, AttributeError):
        return {}  # a runner without metrics
    totals: Counter[str] = Counter()
    for counter in found:
        name = counter.key.metric.name
        value = counter.committed if counter.committed is not None else counter.attempted
        totals[name] += int(value or 0)
    return dict(totals)
