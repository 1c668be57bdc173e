"""`hushgram verify`: check every byte of a sketch."""

from __future__ import annotations

import click

from hushgram.pipelines.terminal import print_line

__all__ = ["command"]


@click.command("verify")
@click.argument("sketch", type=click.Path())
def command(sketch: str) -> None:
    """Check the digest of every file of SKETCH, and that its parts agree."""
    from hushgram.sketch.reader import Sketch

    opened = Sketch.open(sketch)
    for entry in opened.verify():
        print_line(f"ok  {entry.name}  {entry.size:,} bytes")
    print_line(f"{sketch}: complete and unaltered; {opened.guarantee.sentence()}")
