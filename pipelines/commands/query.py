"""`hushgram query`: look keys up in a sketch."""

from __future__ import annotations

import click

from hushgram.pipelines.table_output import format_options, print_note, print_table, read_keys

__all__ = ["command"]


@click.command("query")
@click.argument("sketch", type=click.Path())
@click.argument("keys", nargs=-1)
@click.option("--keys-file", help="File with one key a line; - for standard input.")
@click.option(
    "--estimator",
    type=click.Choice(["posterior", "argmax", "unbiased"]),
    default="posterior",
    show_default=True,
)
@click.option(
    "--interval",
    type=click.Choice(["confidence", "credible", "none"]),
    default="confidence",
    show_default=True,
)
@click.option(
    "--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True
)
@click.option(
    "--present",
    type=click.FloatRange(0, 1),
    help="Probability that a looked-up key is in the data at all; by default nothing is assumed.",
)
@click.option(
    "--among",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="The keys were picked out of N by looking at the release: intervals that hold for all N at once.",
)
@format_options
def command(
    sketch: str,
    keys: tuple[str, ...],
    keys_file: str | None,
    estimator: str,
    interval: str,
    level: float,
    present: float | None,
    among: int,
    style: str,
    output: str | None,
) -> None:
    """Estimated counts of KEYS in SKETCH, with intervals. Costs no privacy budget.

    above_zero says whether a count is told apart from 0. An interval holds for any count, also of a key that nobody
    used, if the key was chosen without looking at the release. For keys that were picked out of N by looking, such as
    the largest of N estimates, use --among N.
    """
    from hushgram.sketch.reader import Sketch

    wanted = read_keys(keys, keys_file)
    opened = Sketch.open(sketch)
    kind = None if interval == "none" else interval
    found = opened.estimate(
        wanted, estimator=estimator, interval=kind, level=level, present=present, among=among
    )
    print_table(found.drop_columns("among") if style == "table" else found, style, output)
    held = f" Intervals hold for all of {among:,} keys at once." if among > 1 else ""
    print_note(f"Counts are after bounding.{held} {opened.resolution(level).sentence().capitalize()}.", style)
