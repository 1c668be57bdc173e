"""`hushgram others`: estimate the total of everything that a sketch does not name."""

from __future__ import annotations

import click
import pyarrow as pa

from hushgram.numbers import plus_minus
from hushgram.pipelines.terminal import format_options, print_line, print_note, print_table, total_text

__all__ = ["command"]


@click.command("others")
@click.argument("sketch", type=click.Path())
@click.option(
    "--level",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Probability with which the interval holds.",
)
@click.option("--limit", type=click.IntRange(1), help="Count only this many keys as named, the largest.")
@click.option("--all", "every", is_flag=True, help="Count keys that are probably false as named too.")
@format_options
def command(
    sketch: str, level: float, limit: int | None, every: bool, style: str, output: str | None
) -> None:
    """Estimate the total of all keys of SKETCH that heavy does not name. Costs no privacy budget.

    It is the released number of records without the listed keys, the same total as in the last row of heavy. With
    --limit it is that of all keys but the largest listed ones. It is not released for public keys, and where the
    config states the sizes.
    """
    from hushgram.sketch.reader import Sketch

    opened = Sketch.open(sketch)
    found = opened.others(level, limit, every)
    if style == "table" and output is None:
        keys = plus_minus(found.keys, found.keys_error)
        print_line(total_text(found, f"{keys} other keys", opened))
        print_note(f"{opened.measure.capitalize()}s are after bounding.", style)
        return
    fields = {name: [getattr(found, name)] for name in ("keys", "estimate", "low", "high")}
    print_table(pa.table({**fields, "level": [level]}), style, output)
