"""Tables of pages: ranked keys with shares, names from a file, keys of several columns. Released numbers alone.

A cell is a text for people, rounded to what noise supports, and the value behind it, by which a page sorts and which it
writes to CSV under the field names of the command line.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from markupsafe import Markup, escape
from numpy.typing import NDArray

from hushgram.errors import ParameterError, printable
from hushgram.inputs.key_expressions import parse_key_expression
from hushgram.numbers import counted
from hushgram.pipelines.terminal import rounded
from hushgram.sketch.reader import Sketch, Total

__all__ = [
    "MAX_ROWS",
    "Cell",
    "Column",
    "Keys",
    "Table",
    "asked_keys",
    "everything",
    "ranked_keys",
    "read_titles",
    "total_of",
]

MAX_ROWS = 1_000
# Keys of a file that are looked up beside the listed ones.
MAX_ASKED = 20_000
LEVEL = 0.95
# Characters from which on a key is cut to its cell, and those of its end that are always shown.
_LONG, _LONG_PART, _END = 40, 24, 12
# Characters of a key that a page holds.
_MOST = 700

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """The title of a column, the name of its field in CSV, and how it looks: key, n (number), text or bar."""

    title: str
    field: str
    kind: str = "n"
    label: str = ""  # on a phone, where a row is a card, before the number


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and its value."""

    html: str | Markup
    value: str | float | None = None

    @property
    def stated(self) -> str | None:
        """Return the value as it is sorted and downloaded; None where the text says it."""
        return f"{self.value:.10g}" if isinstance(self.value, float | int) else self.value


@dataclass
class Table:
    """A table of a page; `file` is the name of its download."""

    name: str
    caption: str
    columns: list[Column]
    rows: list[list[Cell]] = field(default_factory=list)
    file: str = "keys.csv"
    search: bool = True


# --- keys -------------------------------------------------------------------------------------------------------


def read_titles(path: str) -> dict[bytes, str]:
    """Return the keys of a file, one per line, with their titles: what follows the first tab of a line."""
    from hushgram.inputs.source import read_key_list

    lines = (line.partition(b"\t") for line in read_key_list(path, "--keys-file", repeated=True))
    return {key: title.decode("utf-8", "replace").strip() for key, _, title in lines if key}


def text_of(key: Any) -> str:
    """Return a key as text."""
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)


class Keys:
    """How the keys of a table look: in one column or as many as they have, and with titles where some are known."""

    def __init__(self, keys: Sequence[str], titles: Mapping[str, str], expression: str = "") -> None:
        self._titles = {key: titles[key] for key in keys if titles.get(key)}
        parts = [_parts(key) for key in keys]
        lengths = {len(each) if each else 0 for each in parts}
        self._width = lengths.pop() if len(lengths) == 1 and keys else 0
        named = re.fullmatch(r"\[(.*)\]", expression.strip())
        names = [name.strip() for name in named[1].split(",")] if named else []
        fits = len(names) == self._width
        self._names = names if fits else [f"column {i + 1}" for i in range(self._width)]
        texts = [self._texts(key) for key in keys]
        self._long = _LONG_PART if texts and len(texts[0]) > 1 else _LONG
        self._cut = {i for row in texts for i, text in enumerate(row) if len(text) > self._long}

    def columns(self, title: str = "key") -> list[Column]:
        """Return the columns of the keys."""
        names = self._names or [title]
        fields = [re.sub(r"\W+", "_", name).strip("_") for name in names]
        pairs = [*zip(names, fields, strict=True), *([("title", "title")] if self._titles else [])]
        kinds = ["key cut" if i in self._cut else "key" for i in range(len(pairs))]
        kinds[-1] += " title" if self._titles else ""
        return [Column(*pair, kind) for pair, kind in zip(pairs, kinds, strict=True)]

    def cells(self, key: str) -> list[Cell]:
        """Return the cells of a key."""
        return [cut_cell(text, self._long) for text in self._texts(key)]

    def _texts(self, key: str) -> list[str]:
        texts = [str(part) for part in _parts(key) or []] if self._width else [key]
        return texts + ([self._titles.get(key, "")] if self._titles else [])


def _parts(key: str) -> list[Any] | None:
    """Return the columns of a key such as ["FR","/a"], or None."""
    if not key.startswith("["):
        return None
    try:
        found = json.loads(key)
    except (ValueError, RecursionError):
        return None
    plain = isinstance(found, list) and len(found) > 1 and not any(isinstance(x, list | dict) for x in found)
    return found if plain else None


def cut_cell(text: str, most: int = _LONG) -> Cell:
    """Return a cell that a page cuts in the middle where it is long; focus and the pointer show all of it."""
    text = printable(text)
    if len(text) <= most:
        return Cell(text)
    if len(text) > _MOST:  # a page stays small whatever keys are like
        text = f"{text[: _MOST - 100]} … {text[-80:]}"
    start, end = escape(text[:-_END]), escape(text[-_END:])
    return Cell(Markup(f'<span class="long" tabindex="0"><span>{start}</span><span>{end}</span></span>'))


# --- ranked keys ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Whole:
    """What shares are shares of, with its interval; `text` says what it is."""

    estimate: float
    low: float
    high: float
    text: str

    def share(self, value: float, low: float, high: float) -> Cell:
        """Return a share in percent, rounded to what noise supports; a dash where it is not resolved."""
        low = max(low, 0.0)
        if high - low > value:
            return Cell("–", "")
        ends = 100.0 * low / self.high, 100.0 * high / max(self.low, 1e-9)
        share = min(value / self.estimate, 1.0)
        digits = min(max(-math.floor(math.log10(max(ends[1] - ends[0], 1e-6) / 4.0)), 0), 4)
        return Cell(f"{100.0 * share:.{digits}f} %", share)


def counts_all(sketch: Sketch) -> bool:
    """Return whether every record counts in full, so that shares and ranks are those of the data."""
    expression = (
        parse_key_expression(sketch.manifest.key_expression) if sketch.manifest.key_expression else None
    )
    several = expression is not None and expression.several
    return sketch.plan.unit == "record" and not sketch.sums_values and not several


def everything(sketch: Sketch, level: float = LEVEL) -> Total:
    """Return the total of all keys, named or not; raise ParameterError where it was not released."""
    whole = sketch.others(level, limit=0)
    if sketch.plan.selection.by_count or not sketch.manifest.heavy_rows:
        return whole
    part = 1.0 - (1.0 - level) / 2.0  # named keys and all others are released apart
    parts = sketch.total(sketch.heavy()["key"], part), sketch.others(part)
    estimate, low, high = (one + other for one, other in zip(*parts, strict=True))
    return Total(estimate, low, high, level, whole.keys, keys_error=whole.keys_error)


def total_of(sketch: Sketch, listed: pa.Table) -> Whole | None:
    """Return the total over all keys where it was released, else over the listed ones; None where noise hides it."""
    try:
        total, low, high = everything(sketch)
        text = "the total after bounding" if not counts_all(sketch) else "the total"
    except ParameterError:
        values, ends = (listed[name].to_numpy().astype(float) for name in ("value", "high"))
        half = float(np.sqrt(((ends - values) ** 2).sum()))  # noise of different keys is independent
        total, text = float(values.sum()), "the sum of the keys of this table"
        low, high = total - half, total + half
    return None if total <= 0 or high - low > total else Whole(total, low, high, text)


def ranked_keys(sketch: Sketch, titles: Mapping[str, str] | None) -> tuple[Table, pa.Table, Whole | None]:
    """Return the table of the largest heavy keys, all of them, and what their shares are of.

    Args:
        sketch: the release.
        titles: keys with their titles, which may be empty; names for fingerprints too.
    """
    spelled = spelled_titles(sketch, titles or {})
    listed = sketch.heavy(keys=list(spelled) if spelled else None)
    listed = listed.sort_by([("value", "descending"), ("fingerprint", "ascending")])
    known_all = counts_all(sketch)
    whole = total_of(sketch, listed) if known_all else None
    values, low, high = (listed[name].to_numpy().astype(float) for name in ("value", "low", "high"))
    names = listed["key"].to_pylist() if "key" in listed.column_names else [None] * len(values)
    known = [text_of(name) for name in names[:MAX_ROWS] if name is not None]
    keys = Keys(known, spelled, sketch.manifest.key_expression)
    title = "key" if known else "fingerprint of the key"
    columns = keys.columns(title)
    sums = np.cumsum(values)
    around = np.sqrt(np.cumsum(((high - low) / 2.0) ** 2))
    caption = f"Intervals hold for all {counted(len(values), 'key')} at once with probability 95 %." + (
        " A rank is a range where they overlap."
        if known_all
        else f" {sketch.measure.capitalize()}s are after contribution bounding. What it dropped of each key is not"
        " known, so neither ranks nor shares are shown."
    )
    numbers = [
        Column("estimate", "value"),
        Column("from", "low", label="from"),
        Column("to", "high", label="to"),
    ]
    if whole is not None:
        caption += f" Shares are of {whole.text}."
        numbers += [
            Column("share", "share", label="share"),
            Column("cumulative share", "cumulative_share", label="cumulative"),
        ]
    bars = [Column("", "", "bar")] if len(columns) < 3 else []  # there is no room for more
    ranks = _ranks(sketch, low, high) if known_all else []
    table = Table(
        "keys", caption, [*([Column("rank", "rank")] if known_all else []), *columns, *numbers, *bars]
    )
    top = float(high.max()) if len(high) else 1.0
    prints = listed["fingerprint"].to_pylist()
    for i in range(min(len(values), MAX_ROWS)):
        cells = [Cell(ranks[i], i + 1)] if known_all else []
        if names[i] is None:
            cells += [Cell(Markup("<code>{}</code>").format(prints[i]), prints[i])]
            cells += [Cell("")] * (len(columns) - 1)
        else:
            cells += keys.cells(text_of(names[i]))
        cells += number_cells(values[i], low[i], high[i], sketch.per_count, listed=True)
        if whole is not None:
            cells.append(whole.share(values[i], low[i], high[i]))
            cells.append(whole.share(sums[i], sums[i] - around[i], sums[i] + around[i]))
        table.rows.append(cells + ([bar(values[i], low[i], high[i], top)] if bars else []))
    return table, listed, whole


def asked_keys(
    sketch: Sketch, titles: Mapping[str, str], listed: pa.Table, whole: Whole | None
) -> tuple[Table, int] | None:
    """Return the table of the keys of a file that are not listed, largest first, and how many have no estimate."""
    spelled = spelled_titles(sketch, titles)
    held = {text_of(key) for key in listed["key"].to_pylist()} if "key" in listed.column_names else set()
    wanted = [key for key in spelled if key not in held][:MAX_ASKED]
    if not wanted:
        return None
    found = sketch.estimate(wanted, among=len(wanted))
    found = found.filter(pa.compute.is_valid(found["low"]))  # a public list says nothing about others
    if not found.num_rows:
        return None
    found = found.sort_by([("estimate", "descending"), ("high", "descending")])
    rows = found.slice(0, MAX_ROWS).to_pylist()
    texts = [text_of(row["key"]) for row in rows]
    keys = Keys(texts, spelled, sketch.manifest.key_expression)
    caption = f"Intervals hold for all {counted(len(wanted), 'looked-up key')} at once with probability 95 %."
    numbers = [
        Column("estimate", "estimate"),
        Column("from", "low", label="from"),
        Column("to", "high", label="to"),
    ]
    numbers += [Column("share", "share", label="share")] if whole is not None else []
    table = Table("asked", caption, [*keys.columns(), *numbers], file="asked.csv")
    for text, row in zip(texts, rows, strict=True):
        value = row["estimate"] if row["resolved"] else None
        cells = keys.cells(text) + number_cells(value, row["low"], row["high"], sketch.per_count, listed=True)
        if whole is not None:
            cells.append(Cell("–", "") if value is None else whole.share(value, row["low"], row["high"]))
        table.rows.append(cells)
    unresolved = found.num_rows - int(np.sum(found["resolved"].to_numpy(zero_copy_only=False)))
    return table, unresolved


def spelled_titles(sketch: Sketch, titles: Mapping[Any, str]) -> dict[str, str]:
    """Return the titles by keys as the release spells them; a key expression may make one of several."""
    if not titles:
        return {}
    spelled = map(text_of, sketch.spell(list(titles)).to_pylist())
    out: dict[str, str] = {}
    for key, title in zip(spelled, titles.values(), strict=True):
        out[key] = out.get(key) or title
    return out


def number_cells(
    value: float | None, low: float, high: float, finest: float, *, listed: bool = False
) -> list[Cell]:
    """Return estimate and interval; no estimate of what is not ``listed`` where the interval is wider than it."""
    if value is not None and not listed and high - max(low, 0.0) > value:
        value = None
    told = rounded(value, max(low, 0.0), max(high, 0.0), finest)
    return [Cell(told[0], "" if value is None else value), Cell(told[1], low), Cell(told[2], high)]


def bar(value: float, low: float, high: float, top: float) -> Cell:
    """Return a bar up to the estimate of a listed key with its interval."""
    at, start, end = (100.0 * max(x, 0.0) / max(top, 1.0) for x in (value, low, high))
    length = max(end - start, 0.4)
    inside = (
        f'<path d="M0 0h{at:.1f}v10H0z"/><path class="i" d="M{start:.1f} 4h{length:.1f}v2H{start:.1f}z"/>'
    )
    return Cell(
        Markup(f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{inside}</svg>')
    )


def _ranks(sketch: Sketch, low: Floats, high: Floats) -> list[str]:
    """Return the first and the last rank that each key can have, if all intervals hold.

    A key that is not listed may be larger than one whose interval goes down to what was never listed.
    """
    lows, highs = np.sort(low), np.sort(high)
    first = 1 + len(low) - np.searchsorted(lows, high, side="right")
    last = len(low) - np.searchsorted(highs, low, side="left")
    open_end = low <= most_unlisted(sketch)
    return [
        f"{one} or lower" if below else f"{one}" if one == end else f"{one}–{end}"
        for one, end, below in zip(first.tolist(), last.tolist(), open_end.tolist(), strict=True)
    ]


def most_unlisted(sketch: Sketch, level: float = LEVEL) -> float:
    """Return what no key exceeds whose noisy count was below the threshold; for public keys nothing is not listed."""
    plan, sizes = sketch.plan, sketch.plan.sizes
    if not plan.selection.selects:
        return 0.0
    least = max(float(plan.heavy_from), 1.0)
    at_most = max((sizes.records + float(sizes.scale) * 10.0) / least, float(sketch.manifest.heavy_rows), 1.0)
    law = plan.noise.law(float(plan.scale))
    return (least + law.radius(1.0 - (1.0 - level) / at_most)) * sketch.per_count
