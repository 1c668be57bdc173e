"""`hushgram verify`: check every byte of a sketch."""

from __future__ import annotations

import click
import pyarrow as pa

from hushgram.pipelines.terminal import format_options, print_note, print_table

__all__ = ["command"]


@click.command("verify")
@click.argument("sketch", type=click.Path())
@format_options
def command(sketch: str, style: str, output: str | None) -> None:
    """Check the digest of every file of SKETCH, and that its parts agree."""
    from hushgram.sketch.reader import Sketch

    opened = Sketch.open(sketch)
    files = [
        {"file": one.name, "bytes": one.size, "sha256": one.sha256, "status": "ok"} for one in opened.verify()
    ]
    table = pa.Table.from_pylist(files)
    print_table(table.drop_columns("sha256") if style == "table" else table, style, output)
    print_note(f"{sketch}: complete and unaltered; {opened.guarantee.sentence()}", style)
