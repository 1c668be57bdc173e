"""`hushgram query`: estimate the counts of keys in a sketch."""

from __future__ import annotations

import click
import pyarrow as pa

from hushgram.pipelines.terminal import (
    format_options,
    keys_options,
    print_note,
    print_table,
    read_keys,
    round_columns,
    warn_about_keys,
)

__all__ = ["command"]


@click.command("query")
@keys_options
@click.option(
    "--estimator", type=click.Choice(["confidence", "posterior", "argmax", "unbiased"]),
    help="Show an estimate of every key: the count that confidence intervals shrink to, the posterior "
    "mean, the most likely count, or an unbiased estimate. By default confidence, for listed and resolved keys only.",
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
    estimator: str | None,
    interval: str,
    present: float | None,
    among: int,
    style: str,
    output: str | None,
) -> None:
    """Estimate the counts of KEYS in SKETCH, with intervals. Costs no privacy budget.

    A key in the list of the release has a noisy count of its own, its estimate. Of any other key whose interval is
    wider than its estimate, only an upper bound is shown, such as < 50, unless --estimator asks for a number.
    above_zero is yes for a count that is significantly above 0.

    An interval holds for every key that was chosen without looking at the release, even one that nobody used. For keys
    that were picked out of N by their estimates, such as the largest ones, use --among N.
    """
    from hushgram.sketch.reader import Sketch

    wanted = read_keys(keys, keys_file)
    opened = Sketch.open(sketch)
    warn_about_keys(wanted, opened, keys_file)
    kind = None if interval == "none" and estimator else "confidence" if interval == "none" else interval
    found = opened.estimate(
        wanted, estimator=estimator, interval=kind, level=level, present=present, among=among
    )
    if style == "table":
        found = found.drop_columns(["among"] if estimator else ["among", "resolved"])
        found = found if estimator else round_columns(found, opened.per_count)
    if interval == "none":
        nothing = pa.nulls(found.num_rows, found["low"].type)
        found = found.set_column(2, "low", nothing).set_column(3, "high", nothing)
    held = f" Intervals hold for all of {among:,} keys at once." if among > 1 else ""
    limit = opened.detection_limit(level).sentence().capitalize()
    kept = opened.kept_in_words()
    bounded = "after bounding" if kept is None else f"after bounding: {kept}"
    print_table(found, style, output, right=("estimate", "low", "high"))
    print_note(f"{opened.measure.capitalize()}s are {bounded}.{held} {limit}.", style)
