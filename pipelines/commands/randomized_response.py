"""`hushgram randomized-response`: randomized responses, and linear queries over them at no further cost."""

from __future__ import annotations

import click

from hushgram.pipelines.commands.job import job_command
from hushgram.pipelines.terminal import format_options, print_table

__all__ = ["command"]


@click.group("randomized-response")
def command() -> None:
    """Flip secret bits where they are read (randomized response, local model), then ask linear queries."""


command.add_command(job_command("randomized-response", "randomize"))


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
    "--queries", default=1, show_default=True, help="Number of queries for which the intervals hold at once."
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
    """Estimate how many records of TABLE have a secret bit, with a Hoeffding interval. Spends no budget."""
    from hushgram.mechanisms.randomized_response.table import ResponseTable

    opened = ResponseTable.open(table)
    how = {"where": conditions, "weight": weight, "confidence": confidence, "queries": queries}
    print_table(opened.ask_all(secrets, **how), style, output)
