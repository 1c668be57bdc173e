"""`hushgram clip`: a private clipping bound for a numeric column, then sum, count and average."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hushgram.pipelines.commands.job_command import check_output, execute, job_options

if TYPE_CHECKING:
    from hushgram.pipelines.clip import ClipJob

__all__ = ["command"]


@click.command("clip")
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
    """Sum, count and average of the column of CONFIG, clipped at a bound that is found privately.

    Options after -- go to Beam.
    """
    from hushgram.pipelines.import_beam import import_beam

    import_beam()
    from hushgram.pipelines.clip import resolve_clip, run_clip
    from hushgram.pipelines.clip_config import ClipConfig
    from hushgram.pipelines.config import load_config

    job = resolve_clip(load_config(config, overrides, ClipConfig, date))
    if check:
        check_output(job.config.output.path)
        _show(job)
        click.echo("ok: nothing was run and no budget was spent")
        return
    new = execute("clip", job, run_clip, beam_options, quiet=quiet, log=log, metrics=metrics)
    if new and not quiet and log == "text":
        _close(job)


def _show(job: ClipJob) -> None:
    import math

    from hushgram.numbers import show
    from hushgram.svt.accuracy import alpha, theorem_alpha

    p = job.params
    size = len(p.bounds)
    own, theorem = alpha(p.svt, size, "0.05"), theorem_alpha(p.svt, size, "0.05")
    bound, total, count = p.epsilons
    tail = math.log(20)
    click.echo(f"{job.config.job_name}: {job.header()['guarantee']['words']}")
    click.echo(
        f"  epsilon: bound {show(bound)}, sum {show(total)}, count {show(count)}; {p.grid} grid of {size:,}"
    )
    click.echo(f"  the search stops where about {p.threshold:,} records are left above the bound;")
    click.echo(f"  with probability 95% that is right within {own:,} records (Theorem 2, notes: {theorem:,})")
    click.echo(
        f"  noise within 95%: sum {tail * p.max_contributions / float(total):,.1f} x bound, "
        f"count {tail * p.max_contributions / float(count):,.1f}"
    )


def _close(job: ClipJob) -> None:
    """The released figures."""
    import json

    path = job.config.output.path
    click.echo(f"result   {path}")
    if "://" in path:
        return
    with open(path, encoding="utf-8") as file:
        result = json.load(file)["result"]
    found = "" if result["bound_found"] else " (the end of the grid: the search did not stop before)"
    click.echo(f"bound    {result['bound']:,g}{found}")
    click.echo(f"sum      {result['sum']:,.2f}  (noise ±{result['sum_noise']:,.2f} at 95%)")
    click.echo(f"count    {result['count']:,}  (noise ±{result['count_noise']:,.1f} at 95%)")
    if result["average"] is not None:
        click.echo(f"average  {result['average']:,.4f}")
