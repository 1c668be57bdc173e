"""Small pictures as inline SVG: axes, lines with bands, bars with whiskers. No script, no style sheet of its own.

A picture is text that a page embeds; colours come from the page's custom properties, so that a dark page and a printed
one look right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

__all__ = ["Axis", "Band", "Chart", "Line", "as_file", "human"]

_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 14, 46
# The light colours of a page (templates/base.css) and what its classes mean, for a picture in a file of its own: plain
# attributes, since many viewers know neither style sheets nor custom properties.
_PLAIN = {
    "var(--ink)": "#1b1f24",
    "var(--soft)": "#57606a",
    "var(--rule)": "#d5dae0",
    "var(--accent)": "#0b5cad",
    "var(--second)": "#a3470a",
    "var(--third)": "#1a7037",
    "var(--bad)": "#a3270f",
    'class="grid"': 'stroke="#d5dae0"',
    'class="axis"': 'stroke="#57606a"',
}
_FILE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img">
<title>{2}</title>
<rect width="{0}" height="{1}" fill="#ffffff"/>
<g fill="#1b1f24" font-family="sans-serif" font-size="13">
{3}
</g>
</svg>
"""


def human(value: float) -> str:
    """Return a number as an axis shows it: 1, 10, 1k, 2.5M.

    >>> [human(x) for x in (0, 3, 1000, 2_500_000, 0.5)]
    ['0', '3', '1k', '2.5M', '0.5']
    """
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def as_file(title: str, inside: str, width: int = _WIDTH, height: int = _HEIGHT) -> str:
    """Return a picture as a file of its own, which every SVG viewer shows: dark on white, without a style sheet."""
    for name, plain in _PLAIN.items():
        inside = inside.replace(name, plain)
    return _FILE.format(width, height, escape(title), inside)


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, linear or logarithmic."""

    label: str
    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Return where a value lies on the axis, from 0 to 1; values outside are at the ends."""
        low, high = self.low, max(self.high, self.low * 1.000001 + 1e-12)
        if self.log:
            value, low, high = (math.log(max(x, self.low)) for x in (value, low, high))
        return min(max((value - low) / (high - low), 0.0), 1.0)

    def ticks(self) -> list[float]:
        """Return a few round numbers for the ticks."""
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            every = max(1, (last - first) // 6)
            return [10.0**power for power in range(first, last + 1, every)] or [self.low, self.high]
        span = self.high - self.low or 1.0
        step = 10.0 ** math.floor(math.log10(span / 4))
        step *= next(f for f in (1, 2, 5, 10) if span / (step * f) <= 5)
        first = math.ceil(self.low / step)
        return [step * i for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Line:
    """Points joined by a line."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str = "var(--accent)"
    dots: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Band:
    """The area between two lines."""

    points: Sequence[tuple[float, float, float]]
    colour: str = "var(--accent)"


@dataclass
class Chart:
    """A picture with two axes. `title` is read out by screen readers."""

    title: str
    x: Axis
    y: Axis
    bands: list[Band] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    #: where the names of the lines begin, as shares of width and height from the lower left
    legend: tuple[float, float] = (0.0, 1.0)

    def svg(self) -> str:
        """Return the picture as an <svg> element."""
        size = f"0 0 {_WIDTH} {_HEIGHT}"
        inside = "".join(self._inside())
        return (
            f'<svg class="chart" viewBox="{size}" role="img" aria-label="{escape(self.title)}">{inside}</svg>'
        )

    def _inside(self) -> list[str]:
        parts = self._grid()
        for band in self.bands:
            upper = [self._at(x, high) for x, _, high in band.points]
            lower = [self._at(x, low) for x, low, _ in reversed(band.points)]
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in upper + lower)
            parts.append(f'<polygon points="{points}" fill="{band.colour}" opacity="0.22"/>')
        for line in self.lines:
            parts += self._line(line)
        return parts + self._legend()

    def file(self) -> str:
        """Return the picture as a file of its own."""
        return as_file(self.title, "".join(self._inside()))

    def _at(self, x: float, y: float) -> tuple[float, float]:
        across = _LEFT + self.x.place(x) * (_WIDTH - _LEFT - _RIGHT)
        return across, _HEIGHT - _BOTTOM - self.y.place(y) * (_HEIGHT - _TOP - _BOTTOM)

    def _grid(self) -> list[str]:
        out = []
        bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        for tick in self.y.ticks():
            y = self._at(self.x.low, tick)[1]
            out.append(f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            out.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{human(tick)}</text>')
        for tick in self.x.ticks():
            x = self._at(tick, self.y.low)[0]
            out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}" class="axis"/>')
            out.append(f'<text x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{human(tick)}</text>')
        middle = (_LEFT + right) / 2
        out.append(f'<line x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}" class="axis"/>')
        out.append(
            f'<text x="{middle:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(self.x.label)}</text>'
        )
        height = (_TOP + bottom) / 2
        out.append(
            f'<text transform="translate(14 {height:.0f}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.y.label)}</text>"
        )
        return out

    def _line(self, line: Line) -> list[str]:
        places = [self._at(x, y) for x, y in line.points]
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="6 4"' if line.dashed else ""
        out = [f'<polyline points="{text}" fill="none" stroke="{line.colour}" stroke-width="2"{dash}/>']
        if line.dots:
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{line.colour}"/>' for x, y in places]
        return out

    def _legend(self) -> list[str]:
        named = [line for line in self.lines if line.name]
        if len(named) < 2:
            return []
        out = []
        for row, line in enumerate(named):
            y = round(_TOP + (1.0 - self.legend[1]) * (_HEIGHT - _TOP - _BOTTOM)) + 10 + 17 * row
            x = round(_LEFT + self.legend[0] * (_WIDTH - _LEFT - _RIGHT)) + 12
            dash = ' stroke-dasharray="6 4"' if line.dashed else ""
            out.append(
                f'<line x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}" stroke="{line.colour}" stroke-width="2"{dash}/>'
            )
            out.append(f'<text x="{x + 28}" y="{y + 4}">{escape(line.name)}</text>')
        return out
