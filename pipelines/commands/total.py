"""`hushgram total`: the sum over many keys of a sketch."""

from __future__ import annotations

import click
import pyarrow as pa

from hushgram.pipelines.table_output import format_options, print_table, read_keys

__all__ = ["command"]


@click.command("total")
@click.argument("sketch", type=click.Path())
@click.argument("keys", nargs=-1)
@click.option("--keys-file", help="File with one key a line; - for standard input.")
@click.option(
    "--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True
)
@click.option(
    "--present",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    help="Probability that a looked-up key is in the data at all.",
)
@click.option(
    "--estimator",
    type=click.Choice(["posterior", "unbiased"]),
    default="posterior",
    show_default=True,
    help="unbiased: for sets that were chosen by how rare or frequent their keys are.",
)
@format_options
def command(
    sketch: str,
    keys: tuple[str, ...],
    keys_file: str | None,
    level: float,
    present: float,
    estimator: str,
    style: str,
    output: str | None,
) -> None:
    """Estimated sum over a set of keys of SKETCH, each counted once. Costs no privacy budget."""
    from hushgram.sketch.reader import Sketch

    result = Sketch.open(sketch).total(
        read_keys(keys, keys_file), level=level, present=present, estimator=estimator
    )
    if style == "table" and output is None:
        click.echo(
            f"{result.estimate:,.0f} over {result.keys:,} keys ({result.low:,.0f} to {result.high:,.0f} at {level:.0%})"
        )
        return
    fields = {name: [getattr(result, name)] for name in ("keys", "estimate", "low", "high")}
    print_table(pa.table({**fields, "level": [level]}), style, output)
