"""`hushgram top`: the most frequent keys of a public list, chosen privately."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hushgram.pipelines.commands.job_command import execute, job_options

if TYPE_CHECKING:
    from hushgram.pipelines.answer import TopJob

__all__ = ["command"]


@click.command("top")
@job_options
def command(
    config: str,
    beam_options: tuple[str, ...],
    overrides: tuple[str, ...],
    date: str | None,
    check: bool,
    quiet: bool,
    log: str,
    metrics: str | None,
) -> None:
    """Choose the most frequent keys of the public list in CONFIG (permute-and-flip), without their counts."""
    from hushgram.pipelines.answer_config import TopConfig
    from hushgram.pipelines.config import load_config
    from hushgram.pipelines.quiet import import_beam

    loaded = load_config(config, overrides, TopConfig, date)
    import_beam()
    from hushgram.pipelines.answer import resolve_top, run_top

    job = resolve_top(loaded)
    if check:
        _show(job)
        return
    new = execute("top", job, run_top, beam_options, quiet=quiet, log=log, metrics=metrics, fetch=False)
    if new and not quiet and log == "text" and "://" not in job.config.output.path:
        with open(job.config.output.path, encoding="utf-8") as file:
            click.echo(file.read(), nl=False)


def _show(job: TopJob) -> None:
    import math

    from hushgram.numbers import show

    params = job.params
    unit = "record" if job.config.input.user is None else "user"
    click.echo(f"{job.config.job_name}: epsilon {show(params.epsilon)} for one {unit}")
    click.echo(
        f"  {params.count:,} of {len(job.keys):,} keys, epsilon {show(params.epsilon / params.count)} a round"
    )
    # The exponential mechanism's tail, which permute-and-flip never exceeds.
    bound = math.log(len(job.keys) * params.count / 0.05) / float(params.rate)
    click.echo(
        f"  with probability 95 %, each chosen key is within {bound:,.0f} records of the best one left"
    )
