"""`hushgram linear`: randomized responses, and linear queries over them at no further cost."""

from __future__ import annotations

import click

__all__ = ["command"]


@click.group("linear")
def command() -> None:
    """Randomized response in the local model: flip secret bits where they are read, then ask anything
    linear.
    """


@command.command("randomize")
@click.argument("config", type=click.Path())
@click.argument("beam_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- BEAM_OPTIONS]...")
@click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Override a field of the config."
)
@click.option("--date", metavar="DATE", help="Date for {date} in the config: YYYY-MM-DD, today or yesterday.")
@click.option("--check", is_flag=True, help="Show guarantee and accuracy; spend nothing.")
@click.option("--quiet", is_flag=True, help="No progress and no summary.")
def randomize(
    config: str,
    beam_options: tuple[str, ...],
    overrides: tuple[str, ...],
    date: str | None,
    check: bool,
    quiet: bool,
) -> None:
    """Flip every secret bit of the records in CONFIG and publish the table."""
    from hushgram.pipelines.config import load_config
    from hushgram.pipelines.linear_config import LinearConfig

    loaded = load_config(config, overrides, LinearConfig, date)
    if check:
        _show(loaded)
        return
    from hushgram.pipelines.quiet import import_beam

    import_beam()
    from hushgram.pipelines.answer import release_key
    from hushgram.pipelines.budget import open_budget
    from hushgram.pipelines.linear import linear_events, linear_parameters, run_linear
    from hushgram.pipelines.runners import pipeline_options

    options = pipeline_options(list(beam_options), loaded.workers)
    with open_budget(
        job="linear",
        dataset=loaded.dataset,
        ledger=loaded.ledger,
        release=loaded.job_name,
        events=linear_events(loaded),
        parameters=linear_parameters(loaded),
        inputs=loaded.input.path,
        users=loaded.user_partition,
        target=loaded.output.path,
    ) as run:
        for note in run.notes:
            click.echo(note, err=True)
        if run.done:
            return
        run_linear(loaded, path=run.output, secret=release_key(run), options=options, quiet=quiet)
        run.publish()
    if not quiet:
        click.echo(f"randomized responses of {loaded.job_name} in {loaded.output.path}")


def _show(config: object) -> None:
    from hushgram.mechanisms.linear import hoeffding
    from hushgram.numbers import show
    from hushgram.pipelines.linear_config import LinearConfig

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
    metavar="COLUMN=VALUE",
    help="Public columns: city=Paris, age>=30.",
)
@click.option("--weight", help="A public column of weights from 0 to 1.")
@click.option("--confidence", default="0.95", show_default=True, help="Confidence of the intervals.")
@click.option(
    "--queries", default=1, show_default=True, help="How many queries the confidence is to hold for together."
)
@click.option(
    "--format", "style", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True
)
def ask(
    table: str,
    secrets: tuple[str, ...],
    conditions: tuple[str, ...],
    weight: str | None,
    confidence: str,
    queries: int,
    style: str,
) -> None:
    """How many records of TABLE have a secret bit, with a Hoeffding interval. Costs nothing."""
    import pyarrow as pa

    from hushgram.mechanisms.responses import Condition, ResponseTable
    from hushgram.pipelines.tables import print_table

    opened = ResponseTable.open(table)
    where = [Condition.parse(text) for text in conditions]
    names = list(secrets or opened.secrets)
    told = [
        opened.ask(name, where=where, weight=weight, confidence=confidence, queries=queries) for name in names
    ]
    columns = {field: [getattr(one, field) for one in told] for field in ("value", "low", "high")}
    print_table(pa.table({"secret": names, **columns}), style)
