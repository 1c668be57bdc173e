"""`hushgram top`: the most frequent keys of a public list, chosen privately."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hushgram.pipelines.answer import TopJob

__all__ = ["command"]


@click.command("top")
@click.argument("config", type=click.Path())
@click.argument("beam_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- BEAM_OPTIONS]...")
@click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Override a field of the config."
)
@click.option("--date", metavar="DATE", help="Date for {date} in the config: YYYY-MM-DD, today or yesterday.")
@click.option("--check", is_flag=True, help="Show the guarantee; spend nothing.")
@click.option("--quiet", is_flag=True, help="No progress; the chosen keys are in the output file alone.")
def command(
    config: str,
    beam_options: tuple[str, ...],
    overrides: tuple[str, ...],
    date: str | None,
    check: bool,
    quiet: bool,
) -> None:
    """Choose the most frequent keys of the public list in CONFIG (permute-and-flip), without their counts."""
    from hushgram.pipelines.answer_config import TopConfig
    from hushgram.pipelines.config import load_config
    from hushgram.pipelines.quiet import import_beam

    loaded = load_config(config, overrides, TopConfig, date)
    import_beam()
    from hushgram.pipelines.answer import resolve_top

    job = resolve_top(loaded)
    if check:
        _show(job)
        return
    _run(job, beam_options, quiet)


def _run(job: TopJob, beam_options: tuple[str, ...], quiet: bool) -> None:
    from hushgram.pipelines.answer import release_key, run_top
    from hushgram.pipelines.budget import open_budget
    from hushgram.pipelines.runners import pipeline_options

    options = pipeline_options(list(beam_options), job.config.workers)
    with open_budget(
        job="top",
        dataset=job.config.dataset,
        ledger=job.config.ledger,
        release=job.config.job_name,
        events=job.events,
        parameters=job.parameters,
        inputs=job.config.input.path,
        users=job.config.user_partition,
        target=job.config.output.path,
        shape="file",
    ) as run:
        for note in run.notes:
            click.echo(note, err=True)
        if run.done:
            return
        run_top(job, path=run.output, secret=release_key(run), options=options, quiet=quiet)
        run.publish()
    if not quiet and "://" not in job.config.output.path:
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
