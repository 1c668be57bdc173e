"""`hushgram queries`: which of these queries exceed a threshold?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from hushgram.pipelines.commands.job_command import check_output, execute, job_options

if TYPE_CHECKING:
    from hushgram.pipelines.queries import QueriesJob, Stream

__all__ = ["command"]


@click.command("queries")
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
    """Answer the streams of CONFIG privately: above the threshold or not, in order, until the cutoff.

    Options after -- go to Beam.
    """
    from hushgram.pipelines.import_beam import import_beam

    import_beam()
    from hushgram.pipelines.config import load_config
    from hushgram.pipelines.queries import resolve_queries, run_queries
    from hushgram.pipelines.queries_config import QueriesConfig

    job = resolve_queries(load_config(config, overrides, QueriesConfig, date))
    if check:
        check_output(job.config.output.path)
        _show(job)
        click.echo("ok: nothing was run and no budget was spent")
        return
    new = execute("queries", job, run_queries, beam_options, quiet=quiet, log=log, metrics=metrics)
    if new and not quiet and log == "text":
        _close(job)


def _close(job: QueriesJob) -> None:
    """What was released, in a few lines. All of it is public."""
    import json

    path = job.config.output.path
    click.echo(f"answers  {path}")
    if "://" in path:
        return
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][1:]
    for stream in job.streams:
        own = [row for row in rows if row["stream"] == stream.name]
        above = sum(row.get("above", False) for row in own)
        halted = next((row for row in own if row.get("halted")), None)
        end = f"halted after {halted['after']}" if halted else "answered to the end"
        asked, bar = len(stream.queries), stream.params.threshold
        click.echo(f"{stream.name}  {above:,} of {asked:,} above {bar:,}; {end}")


def _show(job: QueriesJob) -> None:
    from hushgram.pipelines.queries_output import guarantee_words

    click.echo(f"{job.config.job_name}: {guarantee_words(job.header)}")
    for stream in job.streams:
        _show_stream(stream, job.config.privacy.max_per_key)


def _show_stream(stream: Stream, max_per_key: int) -> None:
    from hushgram.numbers import show
    from hushgram.pipelines.queries_output import accuracy

    p, noise = stream.params, stream.params.noise
    kinds = Counter(query.kind.name for query in stream.queries)
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
    if len(kinds) > 1 and kinds["key"] and p.sensitivity > max_per_key:
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
