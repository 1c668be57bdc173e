"""`hushgram linear`: randomized responses, and linear queries over them at no further cost."""

from __future__ import annotations

import click

from hushgram.pipelines.commands.job_command import execute, job_options
from hushgram.pipelines.table_output import format_options

__all__ = ["command"]


@click.group("linear")
def command() -> None:
    """Randomized response in the local model: flip secret bits where they are read, then ask anything
    linear.
    """


@command.command("randomize")
@job_options
def randomize(
    config: str,
    beam_options: tuple[str, ...],
    overrides: tuple[str, ...],
    date: str | None,
    check: bool,
    quiet: bool,
    log: str,
    metrics: str | None,
) -> None:
    """Flip every secret bit of the records in CONFIG and publish the table."""
    from hushgram.pipelines.config import load_config
    from hushgram.pipelines.linear_config import LinearConfig

    loaded = load_config(config, overrides, LinearConfig, date)
    if check:
        _show(loaded)
        return
    from hushgram.pipelines.import_beam import import_beam

    import_beam()
    from hushgram.pipelines.linear import LinearJob, run_linear

    new = execute(
        "linear",
        LinearJob(loaded),
        run_linear,
        beam_options,
        quiet=quiet,
        log=log,
        metrics=metrics,
        shape="directory",
        fetch=False,
    )
    if new and not quiet and log == "text":
        click.echo(f"randomized responses of {loaded.job_name} in {loaded.output.path}")


def _show(config: object) -> None:
    from hushgram.numbers import show
    from hushgram.pipelines.linear_config import LinearConfig
    from hushgram.randomized_response.mechanism import hoeffding

    assert isinstance(config, LinearConfig)
    params = config.params()
    click.echo(f"{config.job_name}: {show(params.epsilon)}-local differential privacy for each record")
    click.echo(
        f"  {params.secrets} secret bits at epsilon {show(params.bit_epsilon)}, flipped with {params.flip:.4f}"
    )
    click.echo(
        f"  published as they are: {', '.join(config.public) or 'no column'}, and the number of records"
    )
    for rows in (10_000, 1_000_000):
        margin = hoeffding(rows, params)
        click.echo(f"  a count over {rows:,} records: within {margin:,.0f} with probability 95 % (Hoeffding)")


@command.command("ask")
@click.argument("table", type=click.Path())
@click.option("--secret", "secrets", multiple=True, help="The secret bit to count; all of them if left out.")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="On public columns, as in a query stream: city=Paris, \"age >= 30 AND city IN ('New York', 'Ulm')\".",
)
@click.option("--weight", help="A public column of weights from 0 to 1.")
@click.option("--confidence", default="0.95", show_default=True, help="Confidence of the intervals.")
@click.option(
    "--queries", default=1, show_default=True, help="How many queries the confidence is to hold for together."
)
@format_options
def ask(
    table: str,
    secrets: tuple[str, ...],
    conditions: tuple[str, ...],
    weight: str | None,
    confidence: str,
    queries: int,
    style: str,
    output: str | None,
) -> None:
    """How many records of TABLE have a secret bit, with a Hoeffding interval. Costs nothing."""
    import pyarrow as pa

    from hushgram.pipelines.table_output import print_table
    from hushgram.randomized_response.table import ResponseTable

    opened = ResponseTable.open(table)
    names = list(secrets or opened.secrets)
    told = [
        opened.ask(name, where=conditions, weight=weight, confidence=confidence, queries=queries)
        for name in names
    ]
    columns = {field: [getattr(one, field) for one in told] for field in ("value", "low", "high")}
    print_table(pa.table({"secret": names, **columns}), style, output)
