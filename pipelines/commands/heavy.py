"""`hushgram heavy`: the heavy keys of a sketch."""

from __future__ import annotations

import click
import pyarrow as pa

from hushgram.pipelines.table_output import format_options, print_table

__all__ = ["command"]


@click.command("heavy")
@click.argument("sketch", type=click.Path())
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many, the largest first."
)
@format_options
def command(sketch: str, limit: int, style: str, output: str | None) -> None:
    """The keys of SKETCH whose noisy count reached its bound, the largest first. Costs no privacy budget.

    At delta = 0 keys are fingerprints: to publish the text of a key would not be pure differential privacy.
    """
    from hushgram.sketch.reader import Sketch

    table = (
        Sketch.open(sketch)
        .heavy()
        .sort_by([("value", "descending"), ("fingerprint", "ascending")])
        .slice(0, limit)
    )
    print_table(_with_hex(table), style, output)


def _with_hex(table: pa.Table) -> pa.Table:
    """Fingerprints as hexadecimal text, which no reader takes for a count."""
    shown = pa.array([f"{value:016x}" for value in table["fingerprint"].to_pylist()], pa.string())
    return table.set_column(0, "fingerprint", shown)
