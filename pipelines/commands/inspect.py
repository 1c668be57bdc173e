"""`hushgram inspect`: what a sketch is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hushgram.numbers import show
from hushgram.pipelines.console import json_text
from hushgram.pipelines.table_output import format_options, print_lines, write_output

if TYPE_CHECKING:
    from hushgram.sketch.reader import Sketch

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
    scale = f"{float(plan.scale) * opened.per_count:g}"
    if style == "json":
        body = opened.manifest_json
        write_output(json_text({**body, "bytes": opened.size}) + "\n", output)
        return
    lines = [
        ("release", opened.manifest.release or "(no name)"),
        ("guarantee", guarantee.sentence()),
        ("budget", ", ".join(f"{part.name} {show(part.epsilon)}" for part in guarantee.parts)),
        ("size", f"{opened.size:,} bytes in {len(opened.manifest.files) + 1} files"),
        ("heavy keys", _heavy_words(opened)),
        ("noise", f"discrete {plan.noise.id.capitalize()} of scale {scale} on each heavy key"),
        ("encoding", plan.space.describe() if plan.space else ""),
        ("released sizes", opened.sizes_in_words()),
        ("worth", opened.resolution().sentence()),
    ]
    if plan.totals is not None:
        lines.append(("contributions", plan.totals.in_words(plan.params.max_contributions, opened.per_count)))
    if plan.kind is PURE:
        lines.insert(5, ("domain", f"2^{plan.domain_bits} fingerprints"))
    if plan.space is None:
        lines[4:7] = [
            ("keys", f"{opened.manifest.heavy_rows:,} of a public list, with Laplace noise of scale {scale}")
        ]
    print_lines(lines, style, output)


def _heavy_words(sketch: Sketch) -> str:
    listed, plan = sketch.manifest.heavy_rows, sketch.plan
    what = "sum" if sketch.sums_values else "count"
    words = f"{listed:,} with noisy {what} of at least {plan.threshold * sketch.per_count:,}"
    if plan.domain_bits is None:
        return words
    real, false = sketch.heavy().num_rows, sketch.expected_false(all=True)
    return f"{words}; {real:,} are real with at least 95 %, about {false:,.0f} of all are false"
