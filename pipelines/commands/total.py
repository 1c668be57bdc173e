"""`hushgram total`: estimate the sum over many keys of a sketch."""

from __future__ import annotations

import click
import pyarrow as pa

from hushgram.pipelines.terminal import (
    format_options,
    keys_options,
    print_line,
    print_note,
    print_table,
    read_keys,
    rounded,
    warn_about_keys,
)  # fmt: skip

__all__ = ["command"]


@click.command("total")
@keys_options
@click.option(
    "--assume", type=click.Choice(["nothing", "like-the-data"]), default="nothing", show_default=True,
    help="like-the-data gives shorter intervals for keys that are in the data and were not chosen by their counts.",
)  # fmt: skip
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
    """Estimate the sum over a set of KEYS of SKETCH, each counted once. Costs no privacy budget.

    The interval holds for any set of keys (rare, heavy, or used by nobody) that was chosen without looking at the
    release. A total over keys that were picked for their large estimates is biased upwards.
    """
    from hushgram.sketch.reader import Sketch

    estimator = "posterior" if assume == "like-the-data" else "any"
    opened, wanted = Sketch.open(sketch), read_keys(keys, keys_file)
    warn_about_keys(wanted, opened, keys_file)
    result = opened.total(wanted, level=level, estimator=estimator)
    if style == "table" and output is None:
        about, low, high = rounded(result.estimate, result.low, result.high, opened.per_count)
        print_line(f"{about} over {result.keys:,} keys ({low} to {high} at {level:.0%})")
        print_note(
            f"{opened.measure.capitalize()}s are after bounding. This assumes {result.assumes} about the keys.",
            style,
        )
        return
    fields = {name: [getattr(result, name)] for name in ("keys", "estimate", "low", "high")}
    print_table(pa.table({**fields, "level": [level], "assumes": [result.assumes]}), style, output)
