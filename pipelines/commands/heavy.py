"""`hushgram heavy`: list the heavy keys of a sketch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
import pyarrow.compute

from hushgram.errors import ParameterError
from hushgram.numbers import counted
from hushgram.pipelines.terminal import (
    format_options,
    print_note,
    print_table,
    read_keys,
    round_columns,
    warn_about_keys,
)

if TYPE_CHECKING:
    from hushgram.sketch.reader import Sketch

__all__ = ["command"]


@click.command("heavy")
@click.argument("sketch", type=click.Path())
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="Number of keys to list."
)
@click.option("--all", "every", is_flag=True, help="Include keys that are probably false.")
@click.option(
    "--keys-file",
    metavar="FILE",
    help="File with one key per line, used to name the fingerprints of these keys.",
)
@format_options
def command(
    sketch: str, limit: int, every: bool, keys_file: str | None, style: str, output: str | None
) -> None:
    """List the keys that SKETCH names, largest first. Costs no privacy budget.

    Keys were selected by weights, or by a noisy count that reached the threshold.

    At delta = 0 keys are fingerprints, because publishing the text of a key would not be pure differential privacy.
    Unused fingerprints get noise too, and some of it is large. By default, only keys that are real with probability of
    at least 95 % are listed.

    The intervals hold for all listed keys at once with probability 95 %. They are longer than those of query, which are
    for keys chosen without looking at the release.

    Two rows follow the keys: "more" has the sum of the values that --limit leaves out, and "others" the total of all
    keys that are not named, where that was released, as hushgram others estimates it. Its interval holds by itself.
    Formats other than table mark both rows in the column others.
    """
    from hushgram.sketch.reader import Sketch

    opened = Sketch.open(sketch)
    names = read_keys((), keys_file) if keys_file else None
    warn_about_keys(names or [], opened, keys_file)
    table = opened.heavy(all=every, keys=names)
    order = [("value", "descending"), ("fingerprint", "ascending")]
    shown_table = _with_others(table.sort_by(order), opened, limit, every)
    if style == "table":
        shown_table = round_columns(
            shown_table.drop_columns(["among", "others"]), opened.per_count, estimate="value"
        )
    shown, listed, false = table.num_rows, opened.manifest.heavy_rows, opened.expected_false(all=every)
    if opened.plan.selection.texts:
        told = f"{min(shown, limit):,} of {counted(shown, 'named key')}; none is false."
    else:
        real = "" if every else f" that are real with probability of at least 95 % (out of {listed:,})"
        told = f"{min(shown, limit):,} of {counted(shown, 'key')}{real}; about {false:,.1f} of the {shown:,} are false."
    held = f"Intervals hold for all {listed:,} at once. {opened.measure.capitalize()}s are after bounding."
    if not shown:
        kind = "named key" if opened.plan.selection.texts else "listed key that is probably real"
        told, held = f"This release has no {kind}.", ""
    print_table(shown_table, style, output, right=("value", "low", "high"))
    print_note(f"{told} {held}".rstrip(), style)


def _with_others(table: pa.Table, sketch: Sketch, limit: int, every: bool) -> pa.Table:
    """Return the first rows of the table, a row for its other rows, and one for all keys that are not named, where
    their total was released; these are marked in a last column.
    """
    marked = table.slice(0, limit).append_column(
        "others", pa.array([False] * min(table.num_rows, limit), pa.bool_())
    )
    rows: list[dict[str, Any]] = []
    if table.num_rows > limit:
        rows.append({"fingerprint": "more", "value": pa.compute.sum(table["value"].slice(limit)).as_py()})
    try:
        total = sketch.others(all=every)
    except ParameterError:  # there is no such total
        pass
    else:
        ends = {"low": total.low, "high": total.high}
        rows.append({"fingerprint": "others", "value": total.estimate, **ends})
    whole = pa.types.is_integer(marked.schema.field("value").type)
    for row in rows:
        row |= {"value": round(row["value"]) if whole else row["value"], "others": True}
    columns = [
        pa.concat_arrays(
            [*marked[field.name].chunks, pa.array([row.get(field.name) for row in rows], field.type)]
        )
        for field in marked.schema
    ]
    return pa.table(columns, schema=marked.schema)
