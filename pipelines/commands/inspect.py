"""`hushgram inspect`: what a sketch is."""

from __future__ import annotations

import json

import click

from hushgram.numbers import show
from hushgram.pipelines.table_output import format_options, print_lines, write_output

__all__ = ["command"]


@click.command("inspect")
@click.argument("sketch", type=click.Path())
@format_options
def command(sketch: str, style: str, output: str | None) -> None:
    """Guarantee, sizes and parameters of SKETCH; with --format json, the whole manifest."""
    from hushgram.sketch.reader import Sketch
    from hushgram.sparse_histogram.kinds import PURE

    opened = Sketch.open(sketch)
    plan, guarantee = opened.plan, opened.guarantee
    if style == "json":
        body = json.loads(opened.manifest.to_bytes())
        write_output(json.dumps({**body, "bytes": opened.size}, ensure_ascii=False) + "\n", output)
        return
    lines = [
        ("release", opened.manifest.release or "(no name)"),
        ("guarantee", guarantee.sentence()),
        ("budget", ", ".join(f"{part.name} {show(part.epsilon)}" for part in guarantee.parts)),
        ("size", f"{opened.size:,} bytes in {len(opened.manifest.files) + 1} files"),
        ("heavy keys", f"{opened.manifest.heavy_rows:,} with noisy count of at least {plan.threshold:,}"),
        ("noise", f"discrete Laplace of scale {float(plan.scale):g} on each heavy key"),
        ("encoding", plan.space.describe() if plan.space else ""),
        (
            "released sizes",
            f"about {opened.plan.sizes.records:,} records and {opened.plan.sizes.keys:,} keys",
        ),
    ]
    if plan.kind is PURE:
        lines.insert(5, ("domain", f"2^{plan.domain_bits} fingerprints"))
    if plan.space is None:
        lines[4:8] = [
            (
                "keys",
                f"{opened.manifest.heavy_rows:,} of a public list, with Laplace noise of scale {float(plan.scale):g}",
            )
        ]
    print_lines(lines, style, output)
