"""`hushgram heavy`: the heavy keys of a sketch."""

from __future__ import annotations

import click
import pyarrow as pa

from hushgram.pipelines.table_output import format_options, print_note, print_table, read_keys

__all__ = ["command"]


@click.command("heavy")
@click.argument("sketch", type=click.Path())
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many, the largest first."
)
@click.option("--all", "every", is_flag=True, help="Also those that are probably empty fingerprints.")
@click.option(
    "--keys-file", help="File with one key a line: names the fingerprints of those that are among them."
)
@format_options
def command(
    sketch: str, limit: int, every: bool, keys_file: str | None, style: str, output: str | None
) -> None:
    """The keys of SKETCH whose noisy count reached the threshold, the largest first. Costs no privacy budget.

    At delta = 0 keys are fingerprints: to publish the text of a key would not be pure differential privacy. Empty
    fingerprints get noise too, and some of it is large: shown are keys that are real with at least 95 %.

    The intervals of all listed keys hold at once with 95 %, those of empty fingerprints with 0 in them: they are longer
    than those of query, which are for a key that was chosen without looking.
    """
    from hushgram.sketch.reader import Sketch

    opened = Sketch.open(sketch)
    names = read_keys((), keys_file) if keys_file else None
    table = opened.heavy(all=every, keys=names)
    order = [("value", "descending"), ("fingerprint", "ascending")]
    shown_table = _with_hex(table.sort_by(order).slice(0, limit))
    print_table(shown_table.drop_columns("among") if style == "table" else shown_table, style, output)
    shown, listed, false = table.num_rows, opened.manifest.heavy_rows, opened.expected_false(all=every)
    print_note(
        f"{min(shown, limit):,} of {shown:,} keys"
        + ("" if every else f" that are real with at least 95 % (of {listed:,})")
        + f"; about {false:,.1f} of the {shown:,} are false. Intervals hold for all {listed:,} at once."
        + " Counts are after bounding.",
        style,
    )


def _with_hex(table: pa.Table) -> pa.Table:
    """Fingerprints as hexadecimal text, which no reader takes for a count."""
    shown = pa.array([f"{value:016x}" for value in table["fingerprint"].to_pylist()], pa.string())
    return table.set_column(0, "fingerprint", shown)
