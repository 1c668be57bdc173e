"""Plots of the benchmark pages: figures of a benchmark's JSON as plain SVG files."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from hushgram.pipelines.pages.svg import Axis, Chart, Line, as_file

__all__ = ["COLOURS", "drawn"]

#: One for each line; the order is that of the lines.
COLOURS = ("#1f5fa8", "#7fb0e3", "#1d7f4f", "#8fcba9", "#c2410c", "#7c3aed", "#b58900", "#555555", "#d1477f")
_WIDE, _HIGH, _PLOT = 860, 300, 640


def drawn(figure: dict[str, Any]) -> str:
    """Return the picture: lines with dots, names beside them in the order of the lines."""
    lines = {
        name: [(float(x), float(y)) for x, y in points] for name, points in figure["lines"].items() if points
    }
    every = [point for points in lines.values() for point in points]
    x = _axis(figure["x"], [point[0] for point in every], figure["log_x"])
    y = _axis(figure["y"], [point[1] for point in every], figure["log_y"])
    parts = []
    for place, name in enumerate(lines):
        colour, top = COLOURS[place % len(COLOURS)], 30 + 20 * place
        parts.append(
            f'<line x1="{_PLOT + 8}" x2="{_PLOT + 30}" y1="{top}" y2="{top}" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(f'<text x="{_PLOT + 36}" y="{top + 4}">{escape(name)}</text>')
    named = [
        Line("", sorted(points), COLOURS[place % len(COLOURS)], dots=True)
        for place, points in enumerate(lines.values())
    ]
    inner = Chart(figure["title"], x, y, lines=named).svg()
    body = inner[inner.index(">") + 1 :].removesuffix("</svg>")
    return as_file(figure["title"], body + "".join(parts), _WIDE, _HIGH)


def _axis(label: str, values: list[float], log: bool) -> Axis:
    if log:
        low, high = (max(end, 1e-9) for end in (min(values), max(values)))
        first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
        return Axis(label, 10.0**first, 10.0 ** max(last, first + 1), log=True)
    return Axis(label, min(0.0, *values), max(values) * 1.02)
