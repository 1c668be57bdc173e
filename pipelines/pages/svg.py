"""Small pictures as inline SVG: axes, lines with bands, shades where nothing is known. No script, no style sheet.

A picture is text that a page embeds; colours come from the page's custom properties, so that a dark page and a printed
one look right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape

from hushgram.errors import printable

__all__ = ["Axis", "Band", "Chart", "Line", "Shade", "as_file", "human", "percents"]

_WIDTH, _HEIGHT = 640, 300
# In a page: as wide as its column, on a phone, and beside another one. Text stays legible when they are scaled down.
_WIDE, _NARROW, _SMALL = (920, 320), (460, 300), (440, 250)
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


def percents(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Return marks of a logarithmic axis of shares, as percent.

    >>> percents(0.004, 1.0)
    ((0.01, '1 %'), (0.1, '10 %'), (1.0, '100 %'))
    """
    powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    every = max(1, math.ceil(len(powers) / 7))
    return tuple((10.0**power, _percent(power)) for power in powers[::-1][::every][::-1])


def _percent(power: int) -> str:
    """Return 10**power in percent, short enough for an axis."""
    if power >= -4:
        return f"{10.0 ** (power + 2):.10g} %"
    return (
        f"10{''.join('⁻⁰¹²³⁴⁵⁶⁷⁸⁹'[int(digit) + 1] if digit != '-' else '⁻' for digit in str(power + 2))} %"
    )


def as_file(title: str, inside: str, width: int = _WIDTH, height: int = _HEIGHT) -> str:
    """Return a picture as a file of its own, which every SVG viewer shows: dark on white, without a style sheet."""
    for name, plain in _PLAIN.items():
        inside = inside.replace(name, plain)
    return _FILE.format(width, height, escape(title), inside)


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, linear or logarithmic; with `marks`, these are its ticks."""

    label: str
    low: float
    high: float
    log: bool = False
    marks: Sequence[tuple[float, str]] = ()

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
    """Points joined by a line, or dots alone."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str = "var(--accent)"
    dots: bool = False
    dashed: bool = False
    joined: bool = True


@dataclass(frozen=True)
class Band:
    """The area between two lines."""

    points: Sequence[tuple[float, float, float]]
    colour: str = "var(--accent)"


@dataclass(frozen=True)
class Shade:
    """A part of the horizontal axis of which nothing is known, and a word about it."""

    low: float
    high: float
    text: str = ""


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
    shades: list[Shade] = field(default_factory=list)
    size: tuple[int, int] = (_WIDTH, _HEIGHT)

    def svg(self, css: str = "chart") -> str:
        """Return the picture as an <svg> element."""
        size = f"0 0 {self.size[0]} {self.size[1]}"
        title = escape(printable(self.title))
        return f'<svg class="{css}" viewBox="{size}" role="img" aria-label="{title}">{"".join(self._inside())}</svg>'

    def html(self, small: bool = False, heading: str = "") -> str:
        """Return the picture for a page: one for wide and one for narrow windows, or a small one; names above it."""
        names, bare = self._names(), replace(self, lines=[replace(line, name="") for line in self.lines])
        if small:
            inside = replace(bare, size=_SMALL).svg()
        else:
            wide, narrow = (replace(bare, size=size) for size in (_WIDE, _NARROW))
            inside = wide.svg("chart wide") + narrow.svg("chart narrow")
        if heading:
            names = (
                f'<figcaption title="{escape(printable(heading))}">{escape(printable(heading))}</figcaption>'
            )
        return f"<figure>{names}{inside}</figure>"

    def _names(self) -> str:
        shown = [
            f'<span><svg viewBox="0 0 22 8" aria-hidden="true"><path d="M0 4h22" stroke="{line.colour}"'
            f' stroke-width="3"{_dash(line)}/></svg>{escape(line.name)}</span>'
            for line in self.lines
            if line.name
        ]
        return f"<figcaption>{' '.join(shown)}</figcaption>" if len(shown) > 1 else ""

    def _inside(self) -> list[str]:
        parts = [*self._shades(), *self._grid()]
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
        return as_file(self.title, "".join(self._inside()), *self.size)

    @property
    def _left(self) -> int:
        return _LEFT if self.size == (_WIDTH, _HEIGHT) else _LEFT + 14  # pages have percents

    def _at(self, x: float, y: float) -> tuple[float, float]:
        across = self._left + self.x.place(x) * (self.size[0] - self._left - _RIGHT)
        return across, self.size[1] - _BOTTOM - self.y.place(y) * (self.size[1] - _TOP - _BOTTOM)

    def _shades(self) -> list[str]:
        out = []
        top, bottom = _TOP, self.size[1] - _BOTTOM
        for shade in self.shades:
            (left, _), (right, _) = (self._at(x, self.y.low) for x in (shade.low, shade.high))
            out.append(
                f'<rect x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{bottom - top}"'
                ' fill="var(--soft)" opacity="0.16"/>'
            )
            if right - left > 8 * len(shade.text):
                middle = (left + right) / 2
                out.append(
                    f'<text x="{middle:.1f}" y="{top + 16}" text-anchor="middle">{escape(shade.text)}</text>'
                )
        return out

    def _grid(self) -> list[str]:
        out = []
        bottom, right = self.size[1] - _BOTTOM, self.size[0] - _RIGHT
        for tick, told in self.y.marks or [(tick, human(tick)) for tick in self.y.ticks()]:
            y = self._at(self.x.low, tick)[1]
            out.append(f'<line x1="{self._left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            out.append(f'<text x="{self._left - 8}" y="{y + 4:.1f}" text-anchor="end">{told}</text>')
        for tick, told in self.x.marks or [(tick, human(tick)) for tick in self.x.ticks()]:
            x = self._at(tick, self.y.low)[0]
            out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}" class="axis"/>')
            anchor = "end" if x > right - 16 and len(told) > 4 else "middle"
            out.append(f'<text x="{x:.1f}" y="{bottom + 19}" text-anchor="{anchor}">{told}</text>')
        middle = (self._left + right) / 2
        out.append(f'<line x1="{self._left}" x2="{right}" y1="{bottom}" y2="{bottom}" class="axis"/>')
        out.append(
            f'<text x="{middle:.0f}" y="{self.size[1] - 8}" text-anchor="middle">{escape(self.x.label)}</text>'
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
        stroke = f'stroke="{line.colour}" stroke-width="2"{_dash(line)}'
        out = [f'<polyline points="{text}" fill="none" {stroke}/>'] if line.joined else []
        if line.dots:
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{line.colour}"/>' for x, y in places]
        return out

    def _legend(self) -> list[str]:
        named = [line for line in self.lines if line.name]
        if len(named) < 2:
            return []
        out = []
        for row, line in enumerate(named):
            y = round(_TOP + (1.0 - self.legend[1]) * (self.size[1] - _TOP - _BOTTOM)) + 10 + 17 * row
            x = round(self._left + self.legend[0] * (self.size[0] - self._left - _RIGHT)) + 12
            stroke = f'stroke="{line.colour}" stroke-width="2"{_dash(line)}'
            out.append(f'<line x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}" {stroke}/>')
            out.append(f'<text x="{x + 28}" y="{y + 4}">{escape(line.name)}</text>')
        return out


def _dash(line: Line) -> str:
    return ' stroke-dasharray="6 4"' if line.dashed else ""
