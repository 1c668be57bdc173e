"""The command of a job: the same options for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from hushgram.pipelines.jobs import JOBS
from hushgram.pipelines.run.logs import JobLog, log_options
from hushgram.pipelines.terminal import format_options, status

__all__ = ["JobCommand", "job_command", "job_options", "start"]

C = TypeVar("C", bound=Callable[..., Any])


def job_options(command: C) -> C:
    """Add the arguments CONFIG and BEAM_OPTIONS and all options of a job."""
    for add in (
        log_options,
        format_options,
        click.option("--quiet", is_flag=True, help="Show no progress and no summary."),
        click.option("--check", is_flag=True, help="Dry run: check everything and show what to expect, spend nothing."),
        click.option(
            "--date", metavar="DATE", help="Date for {date} in CONFIG: YYYY-MM-DD, today or yesterday (UTC)."
        ),
        click.option(
            "--to", "last", metavar="DATE", help="With --from: the last date. Default: yesterday."
        ),
        click.option(
            "--from", "first", metavar="DATE",
            help="Backfill: release every date from DATE on that is not released yet. With --check, show the cost.",
        ),
        click.option(
            "--set", "overrides", multiple=True, metavar="FIELD=VALUE",
            help="Override a field of CONFIG, such as privacy.epsilon=0.5.",
        ),
        click.argument("beam_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- BEAM_OPTIONS]..."),
        click.argument("config", type=click.Path()),
    ):  # fmt: skip
        command = add(command)
    return command


class JobCommand(click.Command):
    """A command with options of Beam, which come after ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say where the options of Beam belong."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as problem:
            if problem.possibilities:
                raise
            problem.message = (  # type: ignore[misc]  # click declares it final
                f"No such option {problem.option_name!r}. Options of Beam come last, after --, such as:"
                f" hushgram {self.name} CONFIG -- {problem.option_name}=…"
            )
            raise


def job_command(job: str, name: str | None = None) -> click.Command:
    """Return the command that runs a job, called `name` (by default as the job)."""
    text = f"{JOBS[job][1]}\n\nOptions after -- go to Beam, such as --runner=FlinkRunner --flink_master=host:8081."

    @click.command(name or job, cls=JobCommand, help=text)
    @job_options
    def command(**options: Any) -> None:
        start(job, **options)

    return command


def start(
    job: str,
    *,
    config: str,
    beam_options: tuple[str, ...],
    overrides: tuple[str, ...],
    date: str | None,
    first: str | None,
    last: str | None,
    check: bool,
    **how: Any,
) -> None:
    """Load a job from a config, then check or run it, for one date or for many."""
    if first is not None or last is not None:
        from hushgram.pipelines.run.backfill import backfill

        if date is not None:
            raise click.UsageError("give --date for one release, or --from and --to for several")
        backfill(job, config, overrides, first, last, beam_options, check=check, **how)
        return
    with JobLog(job, how["log"]), status(f"reading {config} and loading Beam …"):
        from hushgram.pipelines.run.job_runner import check_job, load_job, run_job

        loaded = load_job(job, config, overrides, date)
    if check:
        check_job(loaded, beam_options, style=how["style"], output=how["output"], metrics=how["metrics"])
    else:
        run_job(loaded, beam_options, **how)
