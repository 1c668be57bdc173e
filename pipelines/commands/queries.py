"""`hushgram queries`: which of these queries exceed a threshold?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hushgram.pipelines.queries import QueriesJob, Stream

__all__ = ["command"]

_KINDS = {"KeyQuery": "key", "PrefixQuery": "prefix", "RangeQuery": "range", "WhereQuery": "where"}


@click.command("queries", context_settings={"ignore_unknown_options": True})
@click.argument("config", type=click.Path())
@click.option("--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Change a field.")
@click.option("--date", help="YYYY-MM-DD, today or yesterday: replaces {date} in the config.")
@click.option("--check", is_flag=True, help="Show guarantee, noise and accuracy; spend nothing.")
@click.option("--quiet", is_flag=True, help="No progress display.")
@click.argument("beam_options", nargs=-1, type=click.UNPROCESSED)
def command(
    config: str,
    overrides: tuple[str, ...],
    date: str | None,
    check: bool,
    quiet: bool,
    beam_options: tuple[str, ...],
) -> None:
    """Answer the streams of CONFIG privately: above the threshold or not, in order, until the cutoff.

    Beam options may follow after --.
    """
    from hushgram.pipelines.config import load_config
    from hushgram.pipelines.queries import resolve_queries
    from hushgram.pipelines.queries_config import QueriesConfig

    job = resolve_queries(load_config(config, overrides, QueriesConfig, date=date))
    if check:
        _show(job)
        return
    _run(job, beam_options, quiet)


def _run(job: QueriesJob, beam_options: tuple[str, ...], quiet: bool) -> None:
    from hushgram.pipelines.budget import open_budget
    from hushgram.pipelines.queries import publish_queries
    from hushgram.pipelines.runners import pipeline_options

    options = pipeline_options(beam_options, job.config.workers)
    with open_budget(
        job="queries",
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
        publish_queries(job, run, options, quiet=quiet)
    click.echo(f"answers of {job.config.job_name} in {job.config.output.path}")


def _show(job: QueriesJob) -> None:
    from hushgram.pipelines.queries_output import guarantee_words

    click.echo(f"{job.config.job_name}: {guarantee_words(job.header)}")
    for stream in job.streams:
        _show_stream(stream)


def _show_stream(stream: Stream) -> None:
    from hushgram.numbers import show
    from hushgram.pipelines.queries_output import accuracy

    p, noise = stream.params, stream.params.noise
    kinds = Counter(_KINDS[type(query.kind).__name__] for query in stream.queries)
    said = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    form = {
        "split": "one threshold, optimal split (Lyu, Su, Li 2017)",
        "restarts": "calibrated runs of AboveThreshold (dp-accounting)",
        "notes": "threshold redrawn after each yes (Dwork, Roth 2014)",
    }[noise.form]
    values = "" if noise.value is None else f", values {float(noise.value):,.1f}"
    stated = accuracy(p, len(stream.queries), stream.beta)
    cost = f"epsilon {show(p.epsilon)}" + (f", delta {show(p.delta)}" if p.delta else "")
    click.echo(f"\n{stream.name}: {len(stream.queries):,} queries ({said}), {cost}")
    click.echo(f"  threshold {p.threshold:,}, halts after {p.cutoff:,} yes-answers, answers: {p.answers}")
    click.echo(f"  sensitivity {p.sensitivity}, monotone: derived from query kinds and bounds")
    if len(kinds) > 1 and kinds["key"] and p.sensitivity > 1:
        click.echo("  (key queries have a lower sensitivity: in a stream of their own they need less noise)")
    click.echo(f"  {form}")
    click.echo(
        f"  noise scales: threshold {float(noise.threshold):,.1f}, queries {float(noise.query):,.1f}{values}"
    )
    click.echo(
        f"  accuracy: with probability {1 - float(stream.beta):.0%} every answer is right whose exact count"
        f" is further than {stated['alpha']:,} from the threshold"
    )
    click.echo(f"  (Theorems 2 and 4 for the notes' variant: {stated['alpha_of_theorem']:,})")
