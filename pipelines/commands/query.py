"""`hushgram query`: estimate the counts of keys in a sketch."""

from __future__ import annotations

import click

from hushgram.pipelines.terminal import format_options, keys_options, print_note, print_table, read_keys

__all__ = ["command"]


@click.command("query")
@keys_options
@click.option(
    "--estimator", type=click.Choice(["posterior", "argmax", "unbiased"]), default="posterior", show_default=True,
    help="Posterior mean, most likely count, or an unbiased estimate.",
)  # fmt: skip
@click.option(
    "--interval", type=click.Choice(["confidence", "credible", "none"]), default="confidence", show_default=True,
    help="Kind of interval: confidence intervals assume nothing about the counts.",
)  # fmt: skip
@click.option(
    "--present", type=click.FloatRange(0, 1),
    help="Prior probability that a queried key is in the data; by default nothing is assumed.",
)  # fmt: skip
@click.option(
    "--among", type=click.IntRange(1), default=1, show_default=True, metavar="N",
    help="Simultaneous intervals for N keys: use it for keys that were picked out of N by their estimates.",
)  # fmt: skip
@format_options
def command(
    sketch: str,
    keys: tuple[str, ...],
    keys_file: str | None,
    level: float,
    estimator: str,
    interval: str,
    present: float | None,
    among: int,
    style: str,
    output: str | None,
) -> None:
    """Estimate the counts of KEYS in SKETCH, with intervals. Costs no privacy budget.

    above_zero is yes for a count that is significantly above 0. An interval holds for every key that was chosen without
    looking at the release, even one that nobody used. For keys that were picked out of N by their estimates, such as
    the largest ones, use --among N.
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
    print_note(
        f"Counts are after bounding.{held} {opened.detection_limit(level).sentence().capitalize()}.", style
    )
