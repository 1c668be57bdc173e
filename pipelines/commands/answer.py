"""`hushgram answer`: many linear queries by private multiplicative weights, or from a hypothesis released
before.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hushgram.pipelines.commands.job_command import execute
from hushgram.pipelines.logs import log_options
from hushgram.pipelines.table_output import format_options

if TYPE_CHECKING:
    from hushgram.pipelines.answer import AnswerJob

__all__ = ["command"]


@click.command("answer")
@click.argument("source", type=click.Path(), metavar="CONFIG|DIRECTORY")
@click.argument("beam_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- BEAM_OPTIONS]...")
@click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Override a field of the config."
)
@click.option("--date", metavar="DATE", help="Date for {date} in the config: YYYY-MM-DD, today or yesterday.")
@click.option("--check", is_flag=True, help="Show guarantee, noise and accuracy; spend nothing.")
@click.option("--quiet", is_flag=True, help="No progress and no summary.")
@log_options
@click.option(
    "--queries", type=click.Path(), help="With a DIRECTORY: a file of queries to ask, one JSON object a line."
)
@click.option("--key", "keys", multiple=True, help="With a DIRECTORY: ask for the sum over these keys.")
@format_options
def command(
    source: str,
    beam_options: tuple[str, ...],
    overrides: tuple[str, ...],
    date: str | None,
    check: bool,
    quiet: bool,
    log: str,
    metrics: str | None,
    queries: str | None,
    keys: tuple[str, ...],
    style: str,
    output: str | None,
) -> None:
    """Answer the linear queries of CONFIG privately; or ask what an earlier run released in DIRECTORY, for
    free.
    """
    if Path(source).is_dir():
        _ask(source, queries, keys, style, output)
        return
    if queries or keys:
        raise click.UsageError(f"--queries and --key need a directory of released answers, got {source}")
    from hushgram.pipelines.answer_config import AnswerConfig
    from hushgram.pipelines.config import load_config
    from hushgram.pipelines.import_beam import import_beam

    config = load_config(source, overrides, AnswerConfig, date)
    import_beam()
    from hushgram.pipelines.answer import resolve_answer, run_answer

    job = resolve_answer(config)
    if check:
        _show(job)
        return
    new = execute(
        "answer",
        job,
        run_answer,
        beam_options,
        quiet=quiet,
        log=log,
        metrics=metrics,
        shape="directory",
        fetch=False,
    )
    if new and not quiet and log == "text":
        _close(job.config.output.path)


def _ask(directory: str, queries: str | None, keys: tuple[str, ...], style: str, output: str | None) -> None:
    """Post-processing of a released hypothesis: no data, no budget, no Beam."""
    import pyarrow as pa

    from hushgram.errors import InputError
    from hushgram.pipelines.table_output import print_table
    from hushgram.pmw.synthetic import LinearQuery, SyntheticHistogram, read_queries

    synthetic = SyntheticHistogram.open(directory)
    if queries is None and not keys:
        print_table(synthetic.histogram(), style, output)
        return
    asked = [LinearQuery(",".join(keys), {"keys": list(keys)})] if keys else []
    if queries is not None:
        try:
            asked += read_queries(Path(queries).read_bytes().splitlines(), queries)
        except OSError as error:
            raise InputError(f"--queries {queries}: {error.strerror}") from None
    answers = synthetic.answer(asked)
    print_table(pa.table({"id": [query.id for query in asked], "answer": answers}), style, output)


def _close(path: str) -> None:
    from hushgram.pmw.synthetic import SyntheticHistogram

    if "://" in path:
        click.echo(f"answers in {path}")
        return
    manifest = SyntheticHistogram.open(path).manifest
    told = ", ".join(f"{count:,} {words}" for words, count in manifest["answers"].items())
    click.echo(manifest["guarantee"]["words"])
    click.echo(
        f"answers in {path}: {told}; {manifest['updates']} of {manifest['parameters']['max_updates']} updates"
    )
    if manifest["answers"]["hypothesis alone"]:
        click.echo("the update bound was reached: answers marked «hypothesis alone» carry no error bound")


def _show(job: AnswerJob) -> None:
    from hushgram.numbers import show
    from hushgram.pmw.workload import GRID

    epsilon, delta = job.params.guarantee()
    noise = job.params.svt.noise
    slack, measured = job.params.slack()
    threshold = job.params.svt.threshold / GRID
    click.echo(f"{job.config.job_name}: epsilon {show(epsilon)}, delta {show(delta)} for one {job.unit}")
    click.echo(
        f"  {len(job.queries):,} queries over {len(job.cells):,} cells, at most {job.params.max_updates:,} updates"
    )
    click.echo(f"  start: {'a released sketch' if job.prior is not None else 'the uniform histogram'}")
    click.echo(
        f"  noise scales in counts: comparisons {float(noise.query) / GRID:,.1f}, "
        f"measured answers {float(noise.value or 0) / GRID:,.1f}; threshold {threshold:,.1f}"
    )
    click.echo(
        f"  with probability 95 %, measured answers are within {measured:,.0f} counts, and answers from the hypothesis "
        f"within {threshold + slack:,.0f} while updates last"
    )
    width = float(job.params.max_contributions / job.params.epsilon)
    spread = width * math.sqrt(2 * len(job.cells))
    rival = max(
        spread * math.sqrt(2 * math.log(40 * len(job.queries))), width * math.log(40 * len(job.queries))
    )
    click.echo(
        f"  for comparison: a Laplace histogram of the {len(job.cells):,} cells would answer all of them within about "
        f"{rival:,.0f} (see docs/choosing.md)"
    )
