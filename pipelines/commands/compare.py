"""`hushgram compare`: what rose or fell from one sketch to another."""

from __future__ import annotations

import click
import pyarrow as pa
import pyarrow.compute as pc

from hushgram.numbers import counted
from hushgram.pipelines.terminal import format_options, print_note, print_table, read_keys

__all__ = ["command"]


@click.command("compare")
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@click.option("--key", "keys", multiple=True, metavar="KEY", help="A key; may be repeated.")
@click.option("--keys-file", metavar="FILE", help="File with one key per line; - for standard input.")
@click.option(
    "--rate", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, show_default=True,
    help="False discovery rate: the expected share of unchanged keys among those that are shown as changed.",
)  # fmt: skip
@click.option(
    "--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True,
    help="Confidence level of the intervals.",
)  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Show keys without a significant change too.")
@format_options
def command(
    before: str,
    after: str,
    keys: tuple[str, ...],
    keys_file: str | None,
    rate: float,
    level: float,
    every: bool,
    style: str,
    output: str | None,
) -> None:
    """Show which keys rose or fell from the sketch BEFORE to the sketch AFTER. Costs no privacy budget.

    Without keys, all keys that either sketch names are compared. Of the keys that are shown as changed, an expected
    share of at most --rate did not change.
    """
    from hushgram.sketch.over_time import compare
    from hushgram.sketch.reader import Sketch

    wanted = read_keys(keys, keys_file) if keys or keys_file else None
    found = compare(Sketch.open(before), Sketch.open(after), wanted, rate, level)
    table: pa.Table = found.table
    if not every:
        table = table.filter(pc.not_equal(table["change"], ""))
    print_table(table if style != "table" else table.drop_columns("p_value"), style, output, digits=2)
    if found.differs:
        print_note(
            f"WARNING: parameters differ, and counts may differ for that alone: {found.differs}.", style
        )
    print_note(
        f"{found.found:,} of {counted(found.table.num_rows, 'compared key')} changed, at a false"
        f" discovery rate of {rate:g}. Counts are after bounding.",
        style,
    )
