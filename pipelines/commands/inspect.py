"""`hushgram inspect`: what a sketch is."""

from __future__ import annotations

import json

import click

from hushgram.numbers import show

__all__ = ["command"]


@click.command("inspect")
@click.argument("sketch", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the manifest's public numbers as JSON.")
def command(sketch: str, as_json: bool) -> None:
    """Guarantee, sizes and parameters of SKETCH."""
    from hushgram.sketch.reader import Sketch

    opened = Sketch.open(sketch)
    plan, guarantee = opened.plan, opened.guarantee
    if as_json:
        body = json.loads(opened.manifest.to_bytes())
        click.echo(json.dumps({**body, "bytes": opened.size}, ensure_ascii=False))
        return
    params = plan.params
    lines = [
        ("release", opened.manifest.release or "(no name)"),
        ("guarantee", guarantee.sentence(params)),
        ("budget", ", ".join(f"{name} {show(epsilon)}" for name, epsilon, _ in guarantee.parts)),
        ("size", f"{opened.size:,} bytes in {len(opened.manifest.files) + 1} files"),
        ("heavy keys", f"{opened.manifest.heavy_rows:,} with noisy count of at least {plan.bound:,}"),
        ("noise", f"discrete Laplace of scale {float(plan.scale):g} on each heavy key"),
        (
            "columns",
            f"{plan.levels} levels of {float(plan.width):.4g} counts, {plan.bits:,} bits,"
            f" each flipped with probability {show(plan.flip)}",
        ),
        (
            "released sizes",
            f"about {opened.plan.sizes.records:,} records and {opened.plan.sizes.keys:,} keys",
        ),
    ]
    if plan.kind == "pure":
        lines.insert(5, ("domain", f"2^{plan.domain_bits} fingerprints"))
    if plan.kind == "public":
        lines[4:8] = [
            (
                "keys",
                f"{opened.manifest.heavy_rows:,} of a public list, with Laplace noise of scale {float(plan.scale):g}",
            )
        ]
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        click.echo(f"{name.ljust(width)}  {text}")
