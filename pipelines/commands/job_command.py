"""What the commands that run a job share: their options, and a run inside its budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import click

from hushgram.errors import OutputError
from hushgram.pipelines.logs import JobLog, log_options

__all__ = ["Job", "check_output", "execute", "job_options"]

C = TypeVar("C", bound=Callable[..., Any])


class Job(Protocol):
    """A config made exact: what it costs, and what the ledger writes down."""

    @property
    def config(self) -> Any:
        """The job's config."""

    @property
    def events(self) -> list[Any]:
        """What the ledger charges."""

    @property
    def parameters(self) -> dict[str, Any]:
        """All public choices that can change the output."""


def job_options(command: C) -> C:
    """CONFIG, --set, --date, --check, --quiet, --log, --metrics, and Beam's options after --."""
    for add in (
        log_options,
        click.option("--quiet", is_flag=True, help="No progress and no summary."),
        click.option("--check", is_flag=True, help="Check everything, show what to expect, and run nothing."),
        click.option(
            "--date",
            metavar="DATE",
            help="Date for {date} in the config: YYYY-MM-DD, today or yesterday (UTC).",
        ),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="FIELD=VALUE",
            help="Override a field, such as privacy.epsilon=0.5.",
        ),
        click.argument("beam_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- BEAM_OPTIONS]..."),
        click.argument("config", type=click.Path()),
    ):
        command = add(command)
    return command


def check_output(path: str) -> None:
    """Refuses a local output that is there already."""
    if "://" not in path and Path(path).exists():
        raise OutputError(f"output {path} exists already; a release is never overwritten")


def execute(
    kind: str,
    job: Job,
    run_job: Callable[..., Any],
    beam_options: Iterable[str] = (),
    *,
    quiet: bool = False,
    log: str = "text",
    metrics: str | None = None,
    shape: Literal["file", "directory"] = "file",
    fetch: bool = True,
) -> bool:
    """Reserves the budget, runs ``run_job(job, path=, secret=, options=, quiet=)``, publishes what it wrote.

    False where this release had been published before. Workers of a remote runner cannot see this machine's
    disk: with ``fetch`` they write one file beside the target, which is fetched before it is published; without,
    the job itself writes through Beam's file systems.
    """
    from hushgram.pipelines.budget import open_budget
    from hushgram.pipelines.progress import read_counters
    from hushgram.pipelines.release import key_from_environment
    from hushgram.pipelines.runners import is_local, pipeline_options

    config = job.config
    silent = quiet or log == "json"
    with JobLog(kind, log, metrics, dataset=config.dataset, release=config.job_name) as out:
        options = pipeline_options(list(beam_options), config.workers)
        with open_budget(
            job=kind,
            events=job.events,
            target=config.output.path,
            dataset=config.dataset,
            ledger=config.ledger,
            release=config.job_name,
            parameters=job.parameters,
            inputs=config.input.path,
            users=config.user_partition,
            shape=shape,
        ) as run:
            if not quiet or log == "json":
                out.notes(run.notes)
            if run.done:
                return False
            release_key = run.key if run.tracked else key_from_environment() or run.key
            away = fetch and not is_local(options)
            work = f"{config.output.path}.work" if away else str(run.path if fetch else run.output)
            result = run_job(job, path=work, release_key=release_key, options=options, quiet=silent)
            if away:
                _fetch(work, run.path)
            run.publish()
            out.result(rows=read_counters(result).get("rows"), summary=run.summary)
    return True


def _fetch(remote: str, here: Path) -> None:
    from apache_beam.io.filesystems import FileSystems

    with FileSystems.open(remote) as file:
        here.write_bytes(file.read())
    FileSystems.delete([remote])
