"""`hushgram inspect`: guarantee, sizes and parameters of a sketch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hushgram.key_selection.weighted import WHOLE
from hushgram.numbers import counted, show
from hushgram.pipelines.terminal import format_options, json_text, print_lines, write_output

if TYPE_CHECKING:
    from hushgram.key_selection.rounds import SelectionPlan
    from hushgram.sketch.reader import Sketch

__all__ = ["command"]


@click.command("inspect")
@click.argument("sketch", type=click.Path())
@format_options
def command(sketch: str, style: str, output: str | None) -> None:
    """Show guarantee, sizes and parameters of SKETCH; with --format json, the whole manifest."""
    from hushgram.sketch.reader import Sketch
    from hushgram.sparse_histogram.selection import FINGERPRINTS

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
        ("budget", ", ".join(f"{part.kind} {show(part.epsilon)}" for part in guarantee.parts)),
        ("size", f"{opened.size:,} bytes in {len(opened.manifest.files) + 1} files"),
        ("named keys" if plan.selection.texts else "heavy keys", _heavy_keys(opened)),
        ("noise", f"{plan.noise.title} of scale {scale} on each of them"),
        ("encoding", plan.layout.describe() if plan.layout else "none"),
        ("released sizes", opened.sizes_in_words()),
        ("detection limit", opened.detection_limit().sentence()),
    ]
    if (kept := opened.kept_in_words()) is not None:
        lines.append(("kept", kept))
    if plan.selection is FINGERPRINTS:
        domain = f"2^{plan.domain_bits} fingerprints"
        if plan.top is not None:
            high = f"{plan.top.threshold * opened.per_count:,}"
            domain += f"; 2^{plan.top.domain_bits} for those with a noisy {opened.measure} of at least {high}"
        lines.insert(5, ("domain", domain))
    if plan.selection.texts and plan.top is not None:
        listed = f"{sum(opened.manifest.cell_rows):,} of 2^{plan.domain_bits} fingerprints"
        least = f"{plan.threshold * opened.per_count:,}"
        lines.insert(5, ("other keys", f"{listed} listed, with a noisy {opened.measure} of at least {least}"))
    if not plan.selection.selects:
        noise = f"{plan.noise_name.capitalize()} noise of scale {scale}"
        lines[4:7] = [("keys", f"{opened.manifest.heavy_rows:,} of a public list, with {noise}")]
    print_lines(lines, style, output)


def _selected(selection: SelectionPlan) -> str:
    """Describe how keys were selected by weights."""
    last = selection.rounds[-1]
    rounds = counted(len(selection.rounds), "round")
    return (
        f"selected by weights in {rounds} from at most {selection.max_keys} keys per user; a key needs about"
        f" {last.threshold / WHOLE:,.0f} users if they have no other key (noise of scale"
        f" {float(last.scale) / WHOLE:,.3g} users)"
    )


def _heavy_keys(sketch: Sketch) -> str:
    listed, plan = sketch.manifest.heavy_rows, sketch.plan
    if plan.rounds is not None:
        return f"{listed:,}, {_selected(plan.rounds)}"
    text = f"{listed:,} with noisy {sketch.measure} of at least {plan.heavy_from * sketch.per_count:,}"
    if plan.selection.texts:
        return text
    real, false = sketch.heavy().num_rows, sketch.expected_false(all=True)
    return f"{text}; {real:,} are real with probability of at least 95 %, about {false:,.0f} of all are false"
