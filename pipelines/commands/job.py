"""The command of a job: the same options for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from hushgram.pipelines.jobs import JOBS
from hushgram.pipelines.logs import log_options
from hushgram.pipelines.table_output import format_options

__all__ = ["job_command", "job_options", "start"]

C = TypeVar("C", bound=Callable[..., Any])


def job_options(command: C) -> C:
    """CONFIG, --set, --date, --check, --quiet, --format, --output, --log, --metrics, and Beam's options after --."""
    for add in (
        log_options,
        format_options,
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


def job_command(name: str, verb: str | None = None) -> click.Command:
    """The command that runs the job `name`, called `verb` where that is another word."""
    text = f"{JOBS[name][1]}\n\nOptions after -- go to Beam, such as --runner=FlinkRunner --flink_master=host:8081"

    @click.command(verb or name, help=text)
    @job_options
    def command(**options: Any) -> None:
        start(name, **options)

    return command


def start(
    name: str,
    *,
    config: str,
    beam_options: tuple[str, ...],
    overrides: tuple[str, ...],
    date: str | None,
    check: bool,
    **how: Any,
) -> None:
    """Loads the job `name` of a config, then checks or runs it."""
    from hushgram.pipelines.runner import load_job, run_job

    job = load_job(name, config, overrides, date)
    if check:
        from hushgram.pipelines.check import check_job

        check_job(job, beam_options, style=how["style"], output=how["output"], metrics=how["metrics"])
    else:
        run_job(job, beam_options, **how)
