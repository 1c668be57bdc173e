"""`hushgram check`: check configs of any job; offline, without a look at data, ledger or engine."""

from __future__ import annotations

import logging
from typing import Any

import click
import pyarrow as pa

from hushgram.errors import HushgramError, InputError, ParameterError
from hushgram.pipelines.jobs import JOBS, job_class
from hushgram.pipelines.terminal import (
    format_options,
    json_text,
    lines_for_file,
    print_line,
    print_lines,
    print_table,
    write_output,
)  # fmt: skip

__all__ = ["command", "jobs_with_schema", "schema_of"]


@click.command("check")
@click.argument("configs", nargs=-1, metavar="CONFIG...", type=click.Path())
@click.option("--offline", is_flag=True, help="Check the config alone: no data, ledger or engine is used.")
@click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE",
    help="Override a field of CONFIG, such as privacy.epsilon=0.5.",
)  # fmt: skip
@click.option("--date", metavar="DATE", help="Date for {date} in CONFIG. Default with --offline: yesterday.")
@click.option("--schema", metavar="JOB", help="Print the JSON Schema of the configs of a job instead.")
@format_options
def command(
    configs: tuple[str, ...],
    offline: bool,
    overrides: tuple[str, ...],
    date: str | None,
    schema: str | None,
    style: str,
    output: str | None,
) -> None:
    """Check configs and show their guarantee. Every config is checked; the exit code is that of the first mistake.

    Without --offline this is the --check of the job that CONFIG names: a dry run on the data.
    """
    if schema is not None:
        write_output(json_text(schema_of(schema), indent=2) + "\n", output)
        return
    if not configs:
        raise click.UsageError("name a config, or --schema JOB")
    failed: list[int] = []
    rows: list[dict[str, str]] = []
    for config in configs:
        try:
            lines = _check(config, offline, overrides, date)
        except HushgramError as problem:
            for number, line in enumerate(problem.lines):
                print_line(line if number else f"error: {line}", err=True)
            failed.append(problem.exit_code)
            rows.append({"config": config, "name": "error", "text": "\n".join(problem.lines)})
            continue
        if output is not None:
            lines = lines_for_file(lines)
        rows += [{"config": config, "name": name, "text": text} for name, text in lines]
        if style == "table" and output is None:
            if len(configs) > 1:
                print_line(f"{config}:")
            print_lines(lines)
            what = "the config is valid; data, ledger and engine were not checked"
            print_line(f"ok: {what if offline else 'nothing was run and no budget was spent'}")
    if style != "table" or output is not None:
        print_table(pa.Table.from_pylist(rows), style, output)
    if failed:
        raise click.exceptions.Exit(failed[0])


def jobs_with_schema() -> list[str]:
    """Return the jobs that have a config of their own."""
    return [job for job in JOBS if job_class(job).Config.NAME.replace("_", "-") == job]


def schema_of(job: str) -> dict[str, Any]:
    """Return the JSON Schema of the configs of a job."""
    from hushgram.pipelines.config.models import config_schema

    if job not in jobs_with_schema():
        raise ParameterError(f"--schema must be one of {', '.join(jobs_with_schema())}, got {job!r}")
    return config_schema(job_class(job).Config, JOBS[job][1].partition("\n")[0])


def _check(config: str, offline: bool, overrides: tuple[str, ...], date: str | None) -> list[tuple[str, str]]:
    from hushgram.pipelines.config.document import read_document

    data = read_document(config, overrides).data
    job = next((name for name in JOBS if name.replace("-", "_") in data), None)
    if job is None:
        names = ", ".join(name.replace("-", "_") for name in JOBS if name != "bounds")
        raise ParameterError(
            f"{config} names no job; write one of these fields with the name of the run: {names}"
        )
    if offline:
        return _offline_lines(job, config, overrides, date, data)
    from hushgram.pipelines.run.job_runner import checked_lines, load_job

    return checked_lines(load_job(job, config, overrides, date))


def _offline_lines(
    job: str, config: str, overrides: tuple[str, ...], date: str | None, data: dict[str, object]
) -> list[tuple[str, str]]:
    from hushgram.pipelines.config.models import load_config
    from hushgram.pipelines.run.job_runner import job_lines

    kind = job_class(job)
    dated = any(mark in str(data) for mark in ("{date", "{yesterday"))
    loaded = load_config(config, overrides, kind.Config, date or ("yesterday" if dated else None))
    logging.disable(logging.WARNING)  # Beam's, where it is loaded to read keys or queries
    try:
        return list(job_lines(kind(loaded)))
    except InputError as problem:  # keys or queries that are elsewhere
        return [("not checked", str(problem))]
    finally:
        logging.disable(logging.NOTSET)
