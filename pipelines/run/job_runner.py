"""Run or check any job: load → check → reserve budget → plan inputs → run → publish → report.

    job = load_job("top", "configs/top.yaml")
    check_job(job)                      # everything up to the run, and what to expect; spends nothing
    run_job(job)                        # the whole run; False if it had been released before

What differs between jobs is in `hushgram.pipelines.jobs`; this module is the same for all.
"""

from __future__ import annotations

import importlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgram.errors import HushgramError, ParameterError
from hushgram.noise.entropy import ReleaseKey
from hushgram.numbers import counted, show
from hushgram.pipelines.jobs import JOBS, job_class
from hushgram.pipelines.jobs.job import Job, Line, LocalResources, Pipeline
from hushgram.pipelines.run.logs import JobLog, check_writable
from hushgram.pipelines.terminal import (
    EXACT,
    Private,
    file_size,
    print_line,
    print_lines,
    print_table,
    status,
)
from hushgram.publishing import temporary_files_of_a_run

if TYPE_CHECKING:
    import pyarrow as pa
    from apache_beam.options.pipeline_options import PipelineOptions

    from hushgram.accounting.guarantee import Guarantee
    from hushgram.pipelines.run.budget import Run
    from hushgram.pipelines.run.engine_jobs import EngineJob

__all__ = [
    "KEY_FILE", "JobResult", "check_job", "checked_lines", "import_beam", "job_lines", "key_from_environment",
    "load_job", "open_job_budget", "run_built", "run_job", "run_stages",
]  # fmt: skip

# Released rows that the terminal shows.
_CLOSING_ROWS = 20

#: δ from which on a job warns: there are more users than its inverse nearly always
# Above these a guarantee says little, and a run says so: e^10 is 22,026.
LARGE_EPSILON, LARGE_DELTA = 10, Fraction(1, 10_000)
#: Environment variable with the path of a file that contains a release key, for tests and recovery only.
KEY_FILE = "HUSHGRAM_RELEASE_KEY_FILE"


@dataclass(frozen=True)
class JobResult:
    """How long the stages of a job took, and what they counted.

    `exact` is for the operator only: records read, rejected records ("rejected", and each reason). It is empty on a
    runner without metrics. `engine_job` is the id of the job on an engine.
    """

    seconds: float
    exact: dict[str, int]
    engine_job: str | None = None


def load_job(
    name: str, config: str | Path, overrides: Iterable[str] = (), date: str | None = None
) -> Job[Any]:
    """Return the job `name` of a config file, after reading and checking all files that the config names."""
    from hushgram.pipelines.config.document import ConfigError
    from hushgram.pipelines.config.models import load_config

    kind = job_class(name)
    try:
        loaded = load_config(config, overrides, kind.Config, date)
    except ConfigError as problem:
        _name_other_job(name, kind.Config.NAME, config)
        raise problem from None
    import_beam()
    return kind(loaded)


def _name_other_job(name: str, field: str, config: str | Path) -> None:
    """Raise ParameterError if a config that is not valid is one of another job: it has that job's name field."""
    from hushgram.pipelines.config.document import read_document

    data = read_document(config).data
    other = next((job for job in JOBS if job != name and job.replace("-", "_") in data), None)
    if field not in data and other is not None:
        command = f"{other} randomize" if other == "randomized-response" else other
        raise ParameterError(f"{config} is a config of another job; run hushgram {command} {config}")


def import_beam() -> None:
    """Import Beam without the warnings that its import logs about missing clients."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        importlib.import_module("apache_beam.io.gcp.bigquery")  # logs the warning; the runners import it
    finally:
        logging.disable(before)


def check_job(
    job: Job[Any],
    beam_options: Iterable[str] = (),
    *,
    style: str = "table",
    output: str | None = None,
    metrics: str | None = None,
) -> None:
    """Print guarantee, parameters and what to expect (``--check``); raise whatever a run would raise."""
    check_writable("--metrics", metrics)
    check_writable("--output", output)
    print_lines(checked_lines(job, beam_options), style, output)
    if style == "table":
        print_line("ok: nothing was run and no budget was spent")


def checked_lines(job: Job[Any], beam_options: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Return what `check_job` prints.

    Does all that a run does before it draws noise: reads the config and the files that it names, asks the ledger, opens
    the inputs, parses their first blocks, checks columns, types and the output path, and builds the stages. A release
    reads up to 256 MiB of records to tell the operator how many bounding keeps. Draws no noise, spends no budget and
    leaves no file behind.
    """
    from hushgram.pipelines.run.beam_runners import new_pipeline, pipeline_options
    from hushgram.transforms.shuffle.combining import LocalResources

    with temporary_files_of_a_run() as folder, status("opening the inputs and predicting the error …"):
        options = pipeline_options(list(beam_options), job.config.workers)
        ledger = open_job_budget(job).preflight()
        job.open_inputs()
        job.build(
            new_pipeline(options), str(folder / "check/output"), ReleaseKey.generate(), LocalResources()
        )
        exact = job.exact_lines(job.measure(options))
        return [*job_lines(job), ("ledger", ledger), *job.check_lines(), *_input_lines(job), *exact]


def run_job(
    job: Job[Any],
    beam_options: Iterable[str] = (),
    *,
    quiet: bool = False,
    style: str = "table",
    output: str | None = None,
    log: str = "text",
    metrics: str | None = None,
    notify: str | None = None,
) -> bool:
    """Reserve the budget, run the job, publish and report; return False if it had been released before."""
    from hushgram.pipelines.run.beam_runners import is_local, pipeline_options

    config = job.config
    job_log = JobLog(job.kind, log, metrics, notify, dataset=config.dataset, release=job.name)
    with job_log, temporary_files_of_a_run():
        check_writable("--output", output)
        options = pipeline_options(list(beam_options), config.workers)
        run = open_job_budget(job, engine=not is_local(options))
        if quiet or style != "table" or log != "text":  # the closing lines are not shown
            for _, text in _weak(job.guarantee()):
                job_log.write("warning", f"warning: {text}", level="warning")
        try:
            result = _spend(job, run, options, job_log, quiet=quiet)
        except BaseException:
            if run.outcome is not None:
                job_log.write("budget", run.outcome, level="warning")
            raise
        job_log.finish(
            output=config.output.path,
            digest=run.digest,
            **{name: show(getattr(job.guarantee(), name)) for name in ("epsilon", "delta")},
            engine_job=None if result is None else result.engine_job,
        )
        if style != "table":
            print_table(job.released(config.output.path), style, output)
        if result is None:
            return False
        if style == "table" and not quiet and log == "text":
            lines, table = list(_closing_lines(job, result)), _closing_table(job)
            if table is not None and len(table) > _CLOSING_ROWS:
                lines.append(("shown", f"the first {_CLOSING_ROWS} of {len(table):,} rows"))
                table = table.slice(0, _CLOSING_ROWS)
            print_lines(lines, output=output, table=table)
    return True


def _spend(
    job: Job[Any], run: Run, options: PipelineOptions, job_log: JobLog, *, quiet: bool
) -> JobResult | None:
    """Run the job from the reservation to the commit; return None if this release had been published before."""
    with run:
        if not run.done:
            job.open_inputs()  # before anything is created or drawn
        if not quiet or job_log.is_json:
            for note in run.notes:
                job_log.write("budget", note)
        if run.done:
            job_log.result(run.summary)
            return None

        def release_key() -> ReleaseKey:
            key, warning = _release_key(run)
            if warning:
                job_log.write("warning", warning, level="warning")
            return key

        if (result := _adopted(run, options, job_log)) is None:
            result = run_stages(
                job,
                path=run.output,
                release_key=release_key,
                options=options,
                quiet=quiet or job_log.is_json,
                on_job=lambda submitted: run.keep_job(None if submitted is None else submitted.write()),
            )
        run.publish()
        job_log.result(run.summary)
    return result


def _adopted(run: Run, options: PipelineOptions, job_log: JobLog) -> JobResult | None:
    """Wait for a job that an earlier run submitted; return its result if it is complete, else None."""
    if run.earlier_job is None:
        return None
    from hushgram.pipelines.run.engine_jobs import EngineJob, await_earlier

    started, job = time.monotonic(), EngineJob.read(run.earlier_job)
    finished = await_earlier(job, options, lambda text: job_log.write("engine", text))
    return JobResult(time.monotonic() - started, {}, job.id) if run.adopt(finished) else None


def run_stages(
    job: Job[Any],
    *,
    path: str | os.PathLike[str],
    release_key: ReleaseKey | Callable[[], ReleaseKey],
    options: PipelineOptions | None = None,
    quiet: bool = True,
    on_job: Callable[[EngineJob | None], None] = lambda _: None,
) -> JobResult:
    """Build the stages of a job, run them and wait for them.

    Args:
        job: The job, whose inputs need not be open yet.
        path: Where to write, instead of the output path of the config.
        release_key: The key, or a function that is called for it once everything else is ready: a failure before that
            costs no budget.
        options: Beam's options; by default those of the local runner.
        quiet: Whether to show no progress.
        on_job: See `run_pipeline`.
    """
    from hushgram.pipelines.run.beam_runners import hint_memory, pipeline_options

    def build(pipeline: Pipeline, local: LocalResources) -> None:
        key = release_key() if callable(release_key) else release_key
        job.build(pipeline, os.fspath(path), key, local)

    options = pipeline_options(workers=job.config.workers) if options is None else options
    hint_memory(options, job.source.bytes, job.config.shards)
    return run_built(build, options, title=job.name, total_bytes=job.source.bytes, quiet=quiet, on_job=on_job)


def run_built(
    build: Callable[[Pipeline, LocalResources], None],
    options: PipelineOptions,
    *,
    title: str,
    total_bytes: int | None,
    quiet: bool,
    on_job: Callable[[EngineJob | None], None] = lambda _: None,
) -> JobResult:
    """Run the stages that ``build`` adds to a pipeline, and wait."""
    from hushgram.pipelines.run.beam_runners import local_resources, new_pipeline
    from hushgram.pipelines.run.progress import read_counters, run_pipeline

    started, submitted = time.monotonic(), []

    def note(job: EngineJob | None) -> None:
        submitted.append(job)
        on_job(job)

    with local_resources(options) as local:
        pipeline = new_pipeline(options)
        build(pipeline, local)
        result = run_pipeline(
            pipeline, options, title=title, total_bytes=total_bytes, quiet=quiet, on_job=note
        )
    engine_job = submitted[0].id if submitted and submitted[0] else None
    return JobResult(time.monotonic() - started, read_counters(result), engine_job)


def _release_key(run: Run) -> tuple[ReleaseKey, str | None]:
    """Return the key of a run, and a warning about it."""
    if run.tracked:
        ignored = f"warning: {KEY_FILE} is ignored: the ledger has the key of this release"
        return run.key, ignored if os.environ.get(KEY_FILE) else None
    given = key_from_environment()
    if given is None:
        return run.key, None
    return given, (
        f"WARNING: the release key comes from {KEY_FILE}, and no ledger counts its use. Anyone who has that file can"
        " remove the noise from this result, and nothing prevents a second result under the same key. Use it for tests"
        " and recovery only"
    )


def key_from_environment() -> ReleaseKey | None:
    """Return the release key in the file that `KEY_FILE` names, or None if the variable is not set."""
    path = os.environ.get(KEY_FILE)
    if not path:
        return None
    try:
        return ReleaseKey.from_file(path)
    except ParameterError as problem:
        raise ParameterError(f"{KEY_FILE}: {problem}") from None


def open_job_budget(job: Job[Any], *, engine: bool = False) -> Run:
    """Return the budget of a job, not entered yet; with `engine`, a job on an engine writes the output."""
    from hushgram.pipelines.run.budget import open_budget

    config = job.config
    return open_budget(
        job=job.kind,
        events=job.events(),
        target=config.output.path,
        dataset=config.dataset,
        ledger=config.ledger,
        release=job.name,
        parameters=job.parameters(),
        inputs=lambda: job.open_inputs().files,
        users=None if config.user_part is None else config.user_part.name,
        shape=job.shape,
        engine=engine,
    )


def job_lines(job: Job[Any]) -> Iterator[Line]:
    """Yield (name, text) of what follows from the config alone: name, guarantee, shares of the budget, output."""
    guarantee = job.guarantee()
    yield job.kind.replace("-", " "), job.name
    yield "guarantee", f"{guarantee.sentence()} {guarantee.meaning()}"
    yield "budget", ", ".join(f"{part.kind} {show(part.epsilon)}" for part in guarantee.parts)
    yield from _weak(guarantee)
    yield "output", job.config.output.path
    yield "workers", str(job.config.workers)


def _weak(guarantee: Guarantee) -> Iterator[Line]:
    """Yield warnings about a guarantee that is legal and hardly protects anybody."""
    epsilon, delta, unit = guarantee.epsilon, guarantee.delta, guarantee.unit
    if epsilon > LARGE_EPSILON:
        yield (
            "warning",
            f"epsilon {show(epsilon)} is large: one {unit} may change the probability of an output by a factor of"
            f" e^{show(epsilon)}, which protects it little; 1 is a common choice, more than {LARGE_EPSILON} is rare",
        )
    if delta > LARGE_DELTA:
        yield (
            "warning",
            f"delta {show(delta)} is large: a mechanism that publishes all records of one {unit} in"
            f" {float(1 / delta):,.0f} satisfies it; choose it far below 1 / number of {unit}s, such as 1e-6",
        )


def _input_lines(job: Job[Any]) -> Iterator[Line]:
    plan = job.source
    files = f"{counted(len(plan.files), 'file')} ({', '.join(plan.formats)})"
    rows = f", {counted(plan.rows, 'row')} ({EXACT})" if plan.rows is not None else ""
    yield "input", Private(f"{files}, {file_size(plan.bytes)}{rows}")
    yield "columns", ", ".join(f"{f.name} {getattr(f.type, 'value_type', f.type)}" for f in plan.schema)


def _closing_table(job: Job[Any]) -> pa.Table | None:
    """Return the released rows for the terminal; None where there are none, or none that can be read here."""
    path = job.config.output.path
    try:
        table = None if "://" in path else job.closing_table(path)
    except HushgramError:  # which `_closing_lines` has told
        return None
    return table if table is not None and len(table) else None


def _closing_lines(job: Job[Any], result: JobResult) -> Iterator[Line]:
    """Yield what was read (exact, for the operator), the guarantee, and what was released."""
    exact, path = result.exact, job.config.output.path
    if "rows" in exact:
        yield "read", f"{counted(exact['rows'], 'record')} in {result.seconds:,.1f} s ({EXACT})"
    if exact.get("rejected"):
        reasons = sorted((name[10:], count) for name, count in exact.items() if name.startswith("rejected: "))
        listed = "; ".join(f"{reason}: {count:,}" for reason, count in reasons)
        kept = f"; see {job.config.input.rejected_records}" if job.config.input.rejected_records else ""
        yield "rejected", f"{counted(exact['rejected'], 'record')} ({EXACT}): {listed}{kept}"
    yield from job.exact_lines(exact)
    guarantee = job.guarantee()
    yield "guarantee", guarantee.sentence()
    yield from _weak(guarantee)
    yield "output", path
    if "://" in path:  # a remote result is copied before it is read
        return
    try:
        yield from list(job.closing_lines(path))
    except HushgramError as problem:
        print_line(f"warning: the result was written but cannot be opened here: {problem}", err=True)
