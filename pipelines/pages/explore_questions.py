"""Questions to the explore page as its addresses hold them, key files, and the texts of its answers.

A `Question` is what an address asks for: the same address gives the same answer again. An `Answer` holds the numbers
(the CSV file) and what is shown of them, rounded to what the noise supports. Where a count is not resolved, its
interval is shown and no number.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa

from hushgram.errors import ParameterError, printable
from hushgram.inputs.source import read_key_list
from hushgram.pipelines.pages.svg import Axis, Band, Chart, Line
from hushgram.pipelines.terminal import resolved_sums, rounded
from hushgram.sketch.reader import Sketch, Total

__all__ = [
    "LINES", "MAX_KEYS", "SEPARATORS", "VIEWS", "Answer", "Cell", "KeyFile", "Question", "as_estimates", "at_once",
    "change_cells", "columns_of", "count_cell", "direction", "draw", "group_of", "heading", "percent",
    "power_of_two", "short_key", "show_key", "sort_rows", "text_of", "total_cell", "total_change_cells",
]  # fmt: skip

MAX_KEYS = 20_000  # that are looked up at a time
#: Separators that prefixes of keys end with.
SEPARATORS = "/.:- "
#: Colours of the lines of a chart.
LINES = ("var(--accent)", "var(--second)", "var(--third)", "var(--bad)", "var(--soft)")
VIEWS = {"keys": "Keys", "groups": "Groups", "changes": "Changes", "dates": "Over time"}


@dataclass(frozen=True)
class Question:
    """What an address asks for. `sort` is a column, with - in front the largest first."""

    view: str = "keys"
    k: tuple[str, ...] = ()
    file: str = ""
    level: float = 0.95
    by: str = ""
    prefix: str = ""
    before: str = ""
    after: str = ""
    rate: float = 0.05
    every: bool = False
    alone: bool = False
    sort: str = ""
    rows: int = 50

    @classmethod
    def parse(cls, pairs: Iterable[tuple[str, str]]) -> Question:
        """Return the question of the fields of an address; empty fields are as if they were not there."""
        given: dict[str, Any] = {}
        types = {f.name: type(f.default) for f in fields(cls)}
        for name, text in pairs:
            if name not in types:
                raise ParameterError(f"the address has a field {name[:40]!r}, which this page does not know")
            if not text:
                continue
            if any("\ud800" <= letter <= "\udfff" for letter in text):
                raise ParameterError(f"{name} is not text; remove the broken characters")
            if types[name] is tuple:
                given[name] = (*given.get(name, ()), text)
            else:
                given[name] = _number(name, text, types[name]) if types[name] is not str else text
        found = cls(**given)
        found = replace(found, k=tuple(dict.fromkeys(found.k)))
        if found.view not in VIEWS:
            raise ParameterError(f"there is no view {found.view[:40]!r}; use {', '.join(VIEWS)}")
        for name in ("level", "rate"):
            if not 0.0 < getattr(found, name) < 1.0:
                raise ParameterError(f"{name} must be between 0 and 1, got {getattr(found, name):g}")
        if not 1 <= found.rows <= MAX_KEYS:
            raise ParameterError(f"rows must be from 1 to {MAX_KEYS:,}, got {found.rows}")
        if len(found.k) > MAX_KEYS:
            raise ParameterError(f"at most {MAX_KEYS:,} keys at a time; use hushgram query for more")
        return found

    def fields(self, *without: str) -> list[tuple[str, str]]:
        """Return the fields that differ from what an address without fields asks for."""
        out: list[tuple[str, str]] = []
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in without or value == f.default:
                continue
            texts = value if isinstance(value, tuple) else (1 if value is True else value,)
            out += [(f.name, str(text)) for text in texts]
        return out

    def address(self, **changes: Any) -> str:
        """Return the part of the address behind the path, for this question with changes."""
        return "?" + urlencode(replace(self, **changes).fields())


def _number(name: str, text: str, kind: type) -> Any:
    try:
        return text == "1" if kind is bool else kind(text)
    except ValueError:
        raise ParameterError(f"{name} must be a number, got {text[:40]!r}") from None


@dataclass(frozen=True)
class Cell:
    """A text, a softer one after it, and what it is: a key, n (a number), unresolved, rose, fell or soft."""

    text: str
    soft: str = ""
    kind: str = "n"
    title: str = ""
    link: str = ""
    bar: tuple[float, float, float] | None = None  # value, low and high, as shares of the largest


@dataclass
class Answer:
    """The numbers of an answer, and what is shown of them."""

    data: pa.Table
    columns: list[tuple[str, str]] = field(
        default_factory=list
    )  # title, column of `data` that it is sorted by
    rows: list[list[Cell]] = field(default_factory=list)
    foot: list[list[Cell]] = field(default_factory=list)
    caption: str = ""
    tiles: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    chart: str = ""
    number: int = 0  # of rows that there are
    sort: str = ""  # what the rows are sorted by


@dataclass(frozen=True)
class KeyFile:
    """A file of keys, one per line, with a title after a tab where it has one.

    `id` follows from its content, so that an address that names it stays valid.
    """

    id: str
    name: str
    keys: list[str]
    titles: dict[str, str]

    @classmethod
    def open(cls, path: str) -> KeyFile:
        """Return the keys of a file on this machine."""
        return cls._of(path, read_key_list(path, "--keys-file", repeated=True))

    @classmethod
    def read(cls, name: str, content: bytes) -> KeyFile:
        """Return the keys of a file that was sent."""
        name = printable(name).strip()[:100]
        name = name if name not in ("", "-") else "keys"
        return cls._of(name, read_key_list(name, "key file", lambda _: io.BytesIO(content), repeated=True))

    @classmethod
    def _of(cls, path: str, keys: list[bytes]) -> KeyFile:
        id_ = hashlib.sha256(b"\n".join(keys)).hexdigest()[:16]
        try:
            lines = [key.decode().partition("\t") for key in keys]
            titles = {key: title.strip() for key, _, title in lines if key and title.strip()}
            return cls(id_, Path(path).name, list(dict.fromkeys(key for key, _, _ in lines if key)), titles)
        except UnicodeDecodeError:
            raise ParameterError(f"key file {path}: is not UTF-8 text; convert it to UTF-8") from None


def text_of(key: Any) -> str:
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)


def show_key(key: str) -> str:
    """Return a key for people: its columns where it has several, and not all of a long one."""
    parts = columns_of(key)
    text = " · ".join(parts) if len(parts) > 1 else key
    return printable(text if len(text) <= 120 else f"{text[:119]}…")


def short_key(key: str) -> str:
    """Return a key for a heading: the end of a long one."""
    text = show_key(key)
    return text if len(text) <= 24 else f"\u2026{text[-22:]}"


def columns_of(key: str) -> list[str]:
    """Return the columns of a key such as ["FR","example.org"]; none of others."""
    if not key.startswith("["):
        return []
    try:
        found = json.loads(key)
    except (ValueError, RecursionError):
        return []
    return [str(part) for part in found] if isinstance(found, list) else []


def prefix_of(key: str, sign: str, number: int) -> str:
    """Return the key up to a separator, of which those of :// and one at the beginning do not count."""
    start = key.find("://") + 3 if sign in "/:" and "://" in key else 0
    start += key[start : start + 1] == sign
    for _ in range(number):
        at = key.find(sign, start)
        if at < 0:
            return key
        start = at + 1
    return key[:start]


def group_of(key: str, by: str) -> str:
    if by == "all":
        return "all of these keys"
    if by.isdecimal() and by.isascii():
        parts = columns_of(key)
        return parts[int(by[:4]) - 1] if 0 < int(by[:4]) <= len(parts) else "keys without this column"
    if by[0] not in SEPARATORS or not (by[1:].isdecimal() and by.isascii() and len(by) < 4):
        raise ParameterError(
            f"by must be a column such as 1, or a separator and a number such as /1, got {by[:40]!r}"
        )
    return prefix_of(key, by[0], int(by[1:]))


def percent(share: float) -> str:
    return f"{100 * share:.6g} %"


def power_of_two(number: int) -> int:
    """Return the next power of two: few tables serve any number of keys."""
    return 1 << max(number - 1, 0).bit_length()


def at_once(question: Question) -> str:
    return f"All intervals of keys hold at once at {percent(question.level)}."


def heading(name: str, sketch: Sketch, shown: Sequence[Any]) -> str:
    return name if len(shown) > 1 else sketch.measure


def direction(sort: str) -> str:
    return "descending" if sort.startswith("-") else "ascending"


def sort_rows(data: pa.Table, sort: str) -> pa.Table:
    if not sort:
        return data
    name = sort.removeprefix("-")
    if name not in data.column_names:
        raise ParameterError(f"there is no column {name[:60]!r} to sort by")
    order = pa.compute.sort_indices(data, [(name, direction(sort))])
    return data.take(order)


def as_estimates(table: pa.Table) -> pa.Table:
    """Return listed keys with the columns of estimates: each has its count, however wide its interval."""
    value, low, high = (table[name].to_numpy().astype(float) for name in ("value", "low", "high"))
    low, value = np.maximum(low, 0.0), np.maximum(value, 0.0)
    resolved, source = [True] * len(value), ["listed"] * len(value)
    return pa.table({"estimate": value, "low": low, "high": high, "resolved": resolved, "source": source})


def count_cell(
    estimate: float | None, low: float | None, high: float | None, *, finest: float, top: float = 0.0
) -> Cell:
    """Return an answer as text: 120, 90 to 150, or without an estimate < 40, 0 to 40; with `top`, a bar beside it."""
    if low is None or high is None:
        return Cell("not in this release", kind="soft")
    drawn = None
    if top:
        at, start, end = (round(100 * min(max(x or 0.0, 0.0) / top, 1.0), 2) for x in (estimate, low, high))
        drawn = (at, start, end)
    told, least, most = rounded(estimate, max(low, 0.0), high, finest)
    return Cell(told, f"{least} to {most}", kind="n" if estimate is not None else "unresolved", bar=drawn)


def total_cell(ask: Callable[[], Total], sketch: Sketch) -> Cell:
    """Return a total as text, or that it is not known."""
    try:
        return count_cell(*resolved_sums(ask()), finest=sketch.per_count)
    except ParameterError:  # keys that are not on a list, or a total that was not released
        return Cell("not in this release", kind="soft")


def change_cells(row: dict[str, Any], first: Sketch, second: Sketch) -> list[Cell]:
    """Return what a change looks like: its kind, both counts, difference and ratio, each with its interval."""
    change, finest = row["change"], max(first.per_count, second.per_count)
    cells = [Cell(change or "no change found", kind=change or "soft")]
    for side, sketch in (("before", first), ("after", second)):
        ends = row[f"{side}_low"], row[f"{side}_high"]
        cells.append(count_cell(row[side], *ends, finest=sketch.per_count))
    if row["low"] is None or row["difference"] is None:
        return [*cells, Cell("-", kind="soft"), Cell("-", kind="soft")]
    cells.append(_difference_cell(row["difference"], row["low"], row["high"], finest, change != ""))
    least, most = row["ratio_low"] or 0.0, row["ratio_high"]
    known = most is not None and bool(np.isfinite(most))
    digits = 3 if known and most - least < 0.1 else 2
    span = f"{least:.{digits}f} {f'to {most:.{digits}f}' if known else 'or more'}"
    if not change or row["ratio"] is None or row["before"] is None:
        return [*cells, Cell(span, kind="unresolved")]
    return [*cells, Cell(f"× {row['ratio']:.{digits}f}", span)]


def total_change_cells(keys: list[str], level: float, first: Sketch, second: Sketch) -> list[Cell]:
    """Return how the total of keys changed, as `change_cells` does for a key; none where a total is not known."""
    part = 1.0 - (1.0 - level) / 2.0  # both totals hold at once
    try:
        (a, low_a, high_a), (b, low_b, high_b) = (tuple(s.total(keys, part)) for s in (first, second))
    except ParameterError:
        return []
    low, high = low_b - high_a, high_b - low_a
    kind = "rose" if low > 0 else "fell" if high < 0 else ""
    finest = max(first.per_count, second.per_count)
    counts = [total_cell(functools.partial(s.total, keys, level), s) for s in (first, second)]
    difference = _difference_cell(b - a, low, high, finest, kind != "")
    return [Cell(kind or "no change found", kind=kind or "soft"), *counts, difference, Cell("", kind="soft")]


def _difference_cell(middle: float, low: float, high: float, finest: float, known: bool) -> Cell:
    texts = (text.replace("-", "\u2212") for text in rounded(middle, low, high, finest))
    told, least, most = texts
    between = f"{least} to {most}"
    return Cell(f"{'+' if middle > 0 else ''}{told}", between) if known else Cell(between, kind="unresolved")


def draw(dates: list[Any], columns: list[tuple[str, list[Any]]]) -> str:
    """Draw a band per column of (estimate, low, high) by date, and a line where it is resolved."""
    first, days = dates[0], [float((date - dates[0]).days) for date in dates]
    top = max([high for _, column in columns for _, _, high in column if high is not None], default=1.0)
    every = max(1, -(-len(dates) // 6))
    marks = [(day, f"{date:%b} {date.day}") for day, date in zip(days, dates, strict=True)][::every]
    years = f"{first.year}" if first.year == dates[-1].year else f"{first.year} to {dates[-1].year}"
    side = 0.04 * days[-1]  # room for the text below the first and the last date
    chart = Chart(
        f"Counts of {', '.join(title for title, _ in columns)} by date",
        Axis(years, -side, days[-1] + side, marks=marks),
        Axis("count", 0.0, max(top, 1.0)),
    )
    for (title, column), colour in zip(columns, LINES, strict=False):
        known = [(day, *held) for day, held in zip(days, column, strict=True) if held[1] is not None]
        chart.bands.append(Band([(day, low, high) for day, _, low, high in known], colour))
        runs: list[list[tuple[float, float]]] = [[]]
        for day, estimate, _, _ in known:
            if estimate is not None:
                runs[-1].append((day, estimate))
            elif runs[-1]:
                runs.append([])
        for number, points in enumerate(runs):  # the first one has the name, even if nothing is resolved
            name = title[:60] if number == 0 else ""
            chart.lines.append(Line(name, points, colour, dots=len(dates) <= 40))
    return chart.html()
