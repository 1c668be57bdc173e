"""`hushgram total`: the sum over many keys of a sketch."""

from __future__ import annotations

import click
import pyarrow as pa

from hushgram.pipelines.console import say
from hushgram.pipelines.table_output import format_options, print_note, print_table, read_keys

__all__ = ["command"]


@click.command("total")
@click.argument("sketch", type=click.Path())
@click.argument("keys", nargs=-1)
@click.option("--keys-file", help="File with one key a line; - for standard input.")
@click.option(
    "--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True
)
@click.option(
    "--assume",
    type=click.Choice(["nothing", "like-the-data"]),
    default="nothing",
    show_default=True,
    help="like-the-data: sharper, for keys that are in the data and were not chosen by their counts.",
)
@format_options
def command(
    sketch: str,
    keys: tuple[str, ...],
    keys_file: str | None,
    level: float,
    assume: str,
    style: str,
    output: str | None,
) -> None:
    """Estimated sum over a set of keys of SKETCH, each counted once. Costs no privacy budget.

    The interval holds for any set: rare keys, heavy keys, keys that nobody used. The set must be chosen without looking
    at the release: keys that were picked for their estimates have been lucky, and so has their total.
    """
    from hushgram.sketch.reader import Sketch

    estimator = "posterior" if assume == "like-the-data" else "any"
    result = Sketch.open(sketch).total(read_keys(keys, keys_file), level=level, estimator=estimator)
    if style == "table" and output is None:
        say(
            f"{result.estimate:,.0f} over {result.keys:,} keys ({result.low:,.0f} to {result.high:,.0f} at {level:.0%})"
        )
        print_note(f"Counts are after bounding. This assumes {result.assumes} about the keys.", style)
        return
    fields = {name: [getattr(result, name)] for name in ("keys", "estimate", "low", "high")}
    print_table(pa.table({**fields, "level": [level], "assumes": [result.assumes]}), style, output)
