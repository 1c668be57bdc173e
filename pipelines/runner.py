"""How every job is run, and how it is checked: load → check → budget → plan inputs → run → publish → report.

    job = load_job("top", "configs/top.yaml")
    check_job(job)                      # everything up to the run, and what to expect; spends nothing
    run_job(job)                        # the whole way; False where it had been released before

What differs between jobs is in `hushgram.pipelines.jobs`; what is here is the same for all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgram.errors import HushgramError, ParameterError
from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.console import say
from hushgram.pipelines.jobs import job_class
from hushgram.pipelines.jobs.job import Job, Line
from hushgram.pipelines.logs import JobLog, check_writable
from hushgram.pipelines.run_directory import temporary_files_of_a_run
from hushgram.pipelines.table_output import print_lines, print_table

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

    from hushgram.pipelines.budget import Run

__all__ = [
    "KEY_FILE", "Finished", "key_from_environment", "load_job", "open_job_budget", "run_job", "run_stages",
]  # fmt: skip

#: Environment variable with the path of a file that holds a release key: for tests and recovery alone.
KEY_FILE = "HUSHGRAM_RELEASE_KEY_FILE"


@dataclass(frozen=True)
class Finished:
    """The stages have run: how long it took, and what they counted.

    ``exact`` is for the operator alone: rows read, records set aside ("bad", and each reason). It is empty on
    a runner that does not tell.
    """

    seconds: float
    exact: dict[str, int]


def load_job(
    name: str, config: str | Path, overrides: Iterable[str] = (), date: str | None = None
) -> Job[Any]:
    """The job `name` of a config file, with all that the config names read and checked."""
    from hushgram.pipelines.config import load_config
    from hushgram.pipelines.import_beam import import_beam

    kind = job_class(name)
    loaded = load_config(config, overrides, kind.Config, date)
    import_beam()
    return kind(loaded)


def run_job(
    job: Job[Any],
    beam_options: Iterable[str] = (),
    *,
    quiet: bool = False,
    style: str = "table",
    output: str | None = None,
    log: str = "text",
    metrics: str | None = None,
) -> bool:
    """Reserves the budget, runs the job, publishes and reports; False where it had been released before."""
    from hushgram.pipelines.runners import pipeline_options

    config = job.config
    log_of_run = JobLog(job.kind, log, metrics, dataset=config.dataset, release=job.name)
    with log_of_run as out, temporary_files_of_a_run():
        check_writable("--output", output)
        options = pipeline_options(list(beam_options), config.workers)
        run = open_job_budget(job)
        try:
            finished = _spend(job, run, options, out, quiet=quiet, log=log)
        except BaseException:
            if run.aftermath is not None:
                out.say("budget", run.aftermath, level="warning")
            raise
        if finished is None:
            return False
        if style != "table":
            print_table(job.released(config.output.path), style, output)
        elif not quiet and log == "text":
            print_lines(_closing(job, finished), output=output)
    return True


def _spend(
    job: Job[Any], run: Run, options: PipelineOptions, out: JobLog, *, quiet: bool, log: str
) -> Finished | None:
    """From the reservation to the commit; None where this release had been published before."""
    with run:
        if not run.done:
            job.open_inputs()  # looked at before anything is made or drawn
        if not quiet or log == "json":
            out.notes(run.notes)
        if run.done:
            out.result(run.summary)
            return None

        def release_key() -> ReleaseKey:
            key, warning = _release_key(run)
            if warning:
                out.say("warning", warning, level="warning")
            return key

        silent = quiet or log == "json"
        finished = run_stages(job, path=run.output, release_key=release_key, options=options, quiet=silent)
        run.publish()
        out.result(run.summary)
    return finished


def run_stages(
    job: Job[Any],
    *,
    path: str | os.PathLike[str],
    release_key: ReleaseKey | Callable[[], ReleaseKey],
    options: PipelineOptions | None = None,
    quiet: bool = True,
) -> Finished:
    """Builds the stages of a job, runs them and waits. `path` is written to, whatever the config says.

    `release_key` may be a function: it is asked for the key when everything else is there, since a failure before
    costs nothing.
    """
    from hushgram.pipelines.progress import read_counters, run_pipeline
    from hushgram.pipelines.runners import local_resources, new_pipeline, pipeline_options

    options = pipeline_options(workers=job.config.workers) if options is None else options
    begun = time.monotonic()
    with local_resources(options) as local:
        pipeline = new_pipeline(options)
        key = release_key() if callable(release_key) else release_key
        job.build(pipeline, os.fspath(path), key, local)
        result = run_pipeline(pipeline, options, title=job.name, total_bytes=job.source.bytes, quiet=quiet)
    return Finished(time.monotonic() - begun, read_counters(result))


def _release_key(run: Run) -> tuple[ReleaseKey, str | None]:
    """The key of a run, and what to say about it."""
    if run.tracked:
        ignored = f"warning: {KEY_FILE} is ignored: the ledger has the key of this release"
        return run.key, ignored if os.environ.get(KEY_FILE) else None
    given = key_from_environment()
    if given is None:
        return run.key, None
    return given, (
        f"WARNING: the release key comes from {KEY_FILE}, and no ledger counts its use. Whoever has that file can take"
        " the noise off this result, and nothing keeps a second result from going out under it; for tests and recovery"
        " alone"
    )


def key_from_environment() -> ReleaseKey | None:
    """The release key of the file that `KEY_FILE` names, if it names one."""
    path = os.environ.get(KEY_FILE)
    if not path:
        return None
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ParameterError(f"{KEY_FILE}: {path} cannot be read: {reason}") from None
    return ReleaseKey.from_hex(text)


def open_job_budget(job: Job[Any]) -> Run:
    """The budget of a job, not entered yet."""
    from hushgram.pipelines.budget import open_budget

    config = job.config
    return open_budget(
        job=job.kind,
        events=job.events(),
        target=config.output.path,
        dataset=config.dataset,
        ledger=config.ledger,
        release=job.name,
        parameters=job.parameters(),
        inputs=lambda: [file.path for file in job.open_inputs().files],
        users=None if config.user_part is None else config.user_part.name,
        shape=job.shape,
    )


def _closing(job: Job[Any], finished: Finished) -> Iterator[Line]:
    """What was read (exact, for the operator), what is promised, and what was released."""
    from hushgram.pipelines.progress import EXACT

    exact, path = finished.exact, job.config.output.path
    if "rows" in exact:
        yield "read", f"{exact['rows']:,} records in {finished.seconds:,.1f} s ({EXACT})"
    if exact.get("bad"):
        reasons = {name[5:]: count for name, count in exact.items() if name.startswith("bad: ")}
        told = "; ".join(f"{reason}: {count:,}" for reason, count in sorted(reasons.items()))
        kept = f"; see {job.config.input.bad_records}" if job.config.input.bad_records else ""
        yield "set aside", f"{exact['bad']:,} bad records ({EXACT}): {told}{kept}"
    yield "guarantee", job.guarantee().sentence()
    yield "output", path
    if "://" in path:  # a remote result is copied before it is read
        return
    try:
        yield from list(job.closing_lines(path))
    except HushgramError as problem:
        say(f"warning: the result was written but cannot be opened here: {problem}", err=True)
