"""`hushgram check`: check configs of any job; offline, without a look at data, ledger or engine."""

from __future__ import annotations

import logging

import click

from hushgram.errors import HushgramError, InputError, ParameterError
from hushgram.pipelines.jobs import JOBS
from hushgram.pipelines.terminal import json_text, print_line, print_lines, write_output

__all__ = ["command"]


@click.command("check")
@click.argument("configs", nargs=-1, metavar="CONFIG...", type=click.Path())
@click.option("--offline", is_flag=True, help="Check the config alone: no data, ledger or engine is used.")
@click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE",
    help="Override a field of CONFIG, such as privacy.epsilon=0.5.",
)  # fmt: skip
@click.option("--date", metavar="DATE", help="Date for {date} in CONFIG. Default with --offline: yesterday.")
@click.option("--schema", metavar="JOB", help="Print the JSON Schema of the configs of a job instead.")
def command(
    configs: tuple[str, ...], offline: bool, overrides: tuple[str, ...], date: str | None, schema: str | None
) -> None:
    """Check configs and show their guarantee. Every config is checked; the exit code is that of the first mistake.

    Without --offline this is the --check of the job that CONFIG names: a dry run on the data.
    """
    if schema is not None:
        from hushgram.pipelines.config.schema import config_schema, jobs_with_schema

        if schema not in jobs_with_schema():
            raise ParameterError(f"--schema must be one of {', '.join(jobs_with_schema())}, got {schema!r}")
        write_output(json_text(config_schema(schema), indent=2) + "\n", None)
        return
    if not configs:
        raise click.UsageError("name a config, or --schema JOB")
    failed: list[int] = []
    for config in configs:
        try:
            if len(configs) > 1:
                print_line(f"{config}:")
            _check(config, offline, overrides, date)
        except HushgramError as problem:
            for number, line in enumerate(problem.lines):
                print_line(line if number else f"error: {line}", err=True)
            failed.append(problem.exit_code)
    if failed:
        raise click.exceptions.Exit(failed[0])


def _check(config: str, offline: bool, overrides: tuple[str, ...], date: str | None) -> None:
    from hushgram.pipelines.config.document import read_document

    data = read_document(config, overrides).data
    job = next((name for name in JOBS if name.replace("-", "_") in data), None)
    if job is None:
        names = ", ".join(name.replace("-", "_") for name in JOBS if name != "bounds")
        raise ParameterError(
            f"{config} names no job; write one of these fields with the name of the run: {names}"
        )
    if offline:
        _check_offline(job, config, overrides, date, data)
        return
    from hushgram.pipelines.run.job_runner import check_job, load_job

    check_job(load_job(job, config, overrides, date))


def _check_offline(
    job: str, config: str, overrides: tuple[str, ...], date: str | None, data: dict[str, object]
) -> None:
    from hushgram.pipelines.config.models import load_config
    from hushgram.pipelines.jobs import job_class
    from hushgram.pipelines.run.job_runner import job_lines

    kind = job_class(job)
    dated = any(mark in str(data) for mark in ("{date", "{yesterday"))
    loaded = load_config(config, overrides, kind.Config, date or ("yesterday" if dated else None))
    logging.disable(logging.WARNING)  # Beam's, where it is loaded to read keys or queries
    try:
        lines = list(job_lines(kind(loaded)))
    except InputError as problem:  # keys or queries that are elsewhere
        lines = [("not checked", str(problem))]
    finally:
        logging.disable(logging.NOTSET)
    print_lines(lines)
    print_line("ok: the config is valid; data, ledger and engine were not checked")
