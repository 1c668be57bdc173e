"""The report of several sketches: lines with their bands over dates, and what rose or fell. Released numbers alone."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import jinja2  # noqa: F401  (asked for before anything is computed)
import numpy as np
import pyarrow as pa
from markupsafe import Markup

from hushgram.errors import ParameterError
from hushgram.numbers import counted, show
from hushgram.pipelines.pages import render
from hushgram.pipelines.pages.static import budget_over_time, runs
from hushgram.pipelines.pages.svg import Axis, Band, Chart, Line, Shade
from hushgram.pipelines.pages.tables import (
    LEVEL,
    MAX_ASKED,
    MAX_ROWS,
    Cell,
    Column,
    Keys,
    Table,
    number_cells,
    spelled_titles,
    text_of,
    total_of,
)  # fmt: skip
from hushgram.pipelines.terminal import rounded
from hushgram.sketch.over_time import Changes, Series, compare, date_of, series
from hushgram.sketch.reader import Sketch

if TYPE_CHECKING:
    from hushgram.ledger import ReleaseRecord, Summary

__all__ = ["make_report_over_time"]

_CHARTS = 7  # keys with a chart of their own
_SERIES = 100  # keys in the table by date, at most


def make_report_over_time(
    sketches: Sequence[Sketch],
    ledger: tuple[Summary, Sequence[ReleaseRecord]] | None = None,
    titles: Mapping[Any, str] | None = None,
    rate: float = 0.05,
) -> str:
    """Return the page as HTML: changes from the first to the last release, and series where there are three dates.

    Args:
        sketches: releases of one kind, with dates in their names; two need no dates.
        ledger: summary and history of the data set, for the budget over time.
        titles: the keys to show, with their titles; by default those that the first or the last release names.
        rate: the false discovery rate of the changes.
    """
    named = [(_name(sketch), sketch) for sketch in _in_order(sketches)]
    (before, first), (after, last) = named[0], named[-1]
    known = spelled_titles(first, titles or {})
    if len(known) > MAX_ASKED:
        raise ParameterError(
            f"--keys-file: a report of several sketches takes up to {MAX_ASKED:,} keys; give fewer"
        )
    found = compare(first, last, list(known) or None, rate, LEVEL)
    texts = [text_of(key) for key in found.table["key"].to_pylist()]
    keys = Keys(texts[:MAX_ROWS], known, first.manifest.key_expression)
    return render(
        "over_time",
        name=f"{before} to {after}",
        before=before,
        after=after,
        releases=_releases(named),
        together=_together(sketches),
        changes=_changes(found, texts, keys, first, last),
        changes_note=f"{found.found:,} of {counted(len(texts), 'compared key')} changed, at a false discovery rate of"
        f" {100 * rate:g} %: of the keys that are marked as risen or fallen, an expected share of at most"
        f" {100 * rate:g} % did not change.",
        differs=found.differs,
        series=_over_dates([sketch for _, sketch in named], texts, known) if len(named) > 2 else None,
        budget=None if ledger is None else budget_over_time(*ledger),
    )


def _name(sketch: Sketch) -> str:
    return sketch.manifest.release or sketch.path.name.removesuffix(".sketch")


def _in_order(sketches: Sequence[Sketch]) -> list[Sketch]:
    """Return the sketches by date; two that have none as they are given."""
    try:
        return sorted(sketches, key=date_of)
    except ParameterError:
        if len(sketches) == 2:
            return list(sketches)
        raise


def _releases(named: Sequence[tuple[str, Sketch]]) -> Table:
    columns = [Column("release", "release", "key"), Column("sizes", "sizes", "text")]
    columns += [Column("ε", "epsilon", label="ε"), Column("δ", "delta", label="δ")]
    columns += [Column("detection limit", "detection_limit", label="detection limit")]
    table = Table("all-releases", "", columns, file="releases.csv", search=False)
    for name, sketch in named:
        guarantee, limit = sketch.guarantee, sketch.detection_limit().count
        shown = [Cell(show(number), float(number)) for number in (guarantee.epsilon, guarantee.delta)]
        table.rows.append([Cell(name), Cell(sketch.sizes_in_words()), *shown, Cell(f"{limit:,}", limit)])
    return table


def _together(sketches: Sequence[Sketch]) -> str:
    """Return what protects a user who is in all releases."""
    if any(sketch.plan.unit == "record" for sketch in sketches):
        return ""
    epsilon, delta = (
        sum(getattr(sketch.guarantee, name) for sketch in sketches) for name in ("epsilon", "delta")
    )
    return (
        f"For a user whose records are in all of them, the {len(sketches)} releases together are at least"
        f" ({show(epsilon)}, {show(delta)})-differentially private (basic composition)."
    )


# --- changes ----------------------------------------------------------------------------------------------------


def _changes(found: Changes, texts: Sequence[str], keys: Keys, first: Sketch, last: Sketch) -> Table:
    """Return the table of the changes; keys that changed come first."""
    rows = found.table.slice(0, MAX_ROWS).to_pylist()
    among, asked = len(texts), found.table["key"].slice(0, MAX_ROWS)
    told = [_told(sketch, asked, among) for sketch in (first, last)]
    finest = max(first.per_count, last.per_count)
    table = Table(
        "changes",
        f"Intervals of differences and ratios have level 95 %; those of changed keys hold on average over them."
        f" {first.measure.capitalize()}s are after contribution bounding.",
        [
            *keys.columns(),
            Column("change", "change", "text"),
            Column("before", "before", label="before"),
            Column("after", "after", label="after"),
            Column("difference", "difference", label="difference"),
            Column("", "low", "h"),
            Column("", "high", "h"),
            Column("ratio", "ratio", label="ratio"),
            Column("", "ratio_low", "h"),
            Column("", "ratio_high", "h"),
        ],
        file="changes.csv",
    )
    for i, row in enumerate(rows):
        numbers = [Cell(told[k][i], row[name]) for k, name in enumerate(("before", "after"))]
        ends = [Cell("", row[name] if row[name] is not None else "") for name in ("low", "high")]
        ratios = [_plain(row[name]) for name in ("ratio_low", "ratio_high")]
        change = Cell(row["change"] or "not found", row["change"])
        cells = [change, *numbers, _difference(row, finest), *ends, _ratio(row), *ratios]
        table.rows.append([*keys.cells(texts[i]), *cells])
    return table


def _told(sketch: Sketch, keys: Any, among: int) -> list[str]:
    """Return the estimate of each key in words."""
    found = sketch.estimate(keys, among=max(among, len(keys)))
    columns = (found[name].to_pylist() for name in ("estimate", "low", "high"))
    return [
        "–" if low is None else rounded(value, low, high, sketch.per_count)[0]
        for value, low, high in zip(*columns, strict=True)
    ]


def _plain(value: float | None) -> Cell:
    return Cell("", value if value is not None and math.isfinite(value) else "")


def _difference(row: Mapping[str, Any], finest: float) -> Cell:
    """Return the difference with its interval; the interval alone where it may be 0."""
    value, low, high = row["difference"], row["low"], row["high"]
    if low is None or not math.isfinite(high - low):
        return Cell("–", "" if value is None else value)
    told = [_signed(text) for text in rounded(value, low, high, finest)]
    if value is None or low <= 0.0 <= high:
        return Cell(f"{told[1]} to {told[2]}", "" if value is None else value)
    return Cell(f"{told[0]} ({told[1]} to {told[2]})", value)


def _signed(text: str) -> str:
    return text.replace("-", "−") if text.startswith("-") or text.strip("0.,") == "" else f"+{text}"


def _ratio(row: Mapping[str, Any]) -> Cell:
    """Return the ratio with its interval; the interval alone where it is wider than the ratio."""
    value, low, high = row["ratio"], row["ratio_low"], row["ratio_high"]
    if low is None or math.isnan(low):
        return Cell("–", "")
    if high is None or not math.isfinite(high):
        return Cell("any" if low <= 0.0 else f"at least {low:.2g}", "")
    told = rounded(value, low, high, 0.001)
    if value is None or not math.isfinite(value) or high - low > value:
        return Cell(f"{told[1]} to {told[2]}", "" if value is None or not math.isfinite(value) else value)
    return Cell(f"{told[0]} ({told[1]} to {told[2]})", value)


# --- series -----------------------------------------------------------------------------------------------------


def _over_dates(
    sketches: Sequence[Sketch], texts: Sequence[str], titles: Mapping[str, str]
) -> dict[str, Any]:
    """Return charts and the table of the largest keys by date; intervals of a date hold for all compared keys."""
    latest = sketches[-1].estimate(texts, interval=None)["estimate"].to_numpy(zero_copy_only=False)
    most = max(min(_SERIES, MAX_ROWS // len(sketches)), 1)
    chosen = [texts[i] for i in np.argsort(-np.nan_to_num(latest.astype(float)), kind="stable")[:most]]
    found = series(sketches, chosen, 1.0 - (1.0 - LEVEL) / len(texts))
    rows: dict[str, list[dict[str, Any]]] = {key: [] for key in chosen}
    for row in found.table.filter(pa.compute.equal(found.table["of"], "key")).to_pylist():
        rows[text_of(row["key"])].append(row)
    charts = [_all_keys(sketches, found)] + [
        _chart(titles.get(key) or key, rows[key], found) for key in chosen[:_CHARTS]
    ]
    notes = [
        f"There is no sketch for {', '.join(map(str, found.missing[:10]))}{_more(len(found.missing) - 10)}."
    ]
    notes = notes if found.missing else []
    notes += [f"{date} differs from the first date: {text}." for date, text in found.differs.items()]
    return {
        "charts": [chart for chart in charts if chart is not None],
        "notes": notes,
        "compared": len(texts),
        "table": _by_date(chosen, rows, titles, sketches[0]),
    }


def _more(number: int) -> str:
    return f" and {number:,} more" if number > 0 else ""


def _by_date(
    chosen: Sequence[str],
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    titles: Mapping[str, str],
    sketch: Sketch,
) -> Table:
    keys = Keys(chosen, titles, sketch.manifest.key_expression)
    columns = [Column("date", "date", "text"), *keys.columns()]
    columns += [
        Column("estimate", "estimate"),
        Column("from", "low", label="from"),
        Column("to", "high", label="to"),
    ]
    columns += [
        Column("smoothed", "smoothed", label="smoothed"),
        Column("from", "smoothed_low", label="from"),
        Column("to", "smoothed_high", label="to"),
    ]
    caption = f"The {counted(len(chosen), 'key')} with the largest estimates of the last date."
    table = Table("by-date", caption, columns, file="series.csv")
    for key in chosen:
        for row in rows[key]:
            cells = [Cell(str(row["date"])), *keys.cells(key)]
            for names in (("estimate", "low", "high"), ("smoothed", "smoothed_low", "smoothed_high")):
                value, low, high = (row[name] for name in names)
                cells += (
                    [Cell("–", "")] * 3 if low is None else number_cells(value, low, high, sketch.per_count)
                )
            table.rows.append(cells)
    return table


def _all_keys(sketches: Sequence[Sketch], found: Series) -> Markup | None:
    """Draw the total of each date."""
    totals = [total_of(sketch, sketch.heavy()) for sketch in sketches]
    known = [
        (date_of(sketch), total) for sketch, total in zip(sketches, totals, strict=True) if total is not None
    ]
    if len(known) < len(sketches):
        return None
    points = [(date, total.estimate, total.low, total.high) for date, total in known]
    seen = [(date, value) for date, value, _, _ in points]
    text = known[0][1].text
    return _line_over_dates(text[0].upper() + text[1:], points, seen, found)


def _chart(title: str, rows: Sequence[Mapping[str, Any]], found: Series) -> Markup | None:
    """Draw the smoothed series of one key with its band, and the estimates of single dates."""
    points = [
        (row["date"], row["smoothed"], row["smoothed_low"], row["smoothed_high"])
        for row in rows
        if row["smoothed"] is not None
    ]
    seen = [(row["date"], row["estimate"]) for row in rows if row["estimate"] is not None]
    return _line_over_dates(title, points, seen, found) if points else None


def _line_over_dates(
    title: str,
    points: Sequence[tuple[datetime.date, float, float, float]],
    seen: Sequence[tuple[datetime.date, float]],
    found: Series,
) -> Markup:
    """Draw a line where it is resolved, its band, and dots; dates without a sketch are shaded."""
    dates = found.table["date"].to_pylist()
    start, end = min(dates), max(dates)
    at = [float((date - start).days) for date, *_ in points]
    known = np.array([high - max(low, 0.0) <= value for _, value, low, high in points])
    top = max([high for *_, high in points] + [value for _, value in seen] + [1.0])
    chart = Chart(
        f"{title} by date",
        Axis("", 0.0, float((end - start).days), marks=_marks(start, end)),
        Axis("", 0.0, top * 1.05),
        [Band([(x, max(low, 0.0), high) for x, (_, _, low, high) in zip(at, points, strict=True)])],
        [
            Line(
                "",
                [(float((date - start).days), value) for date, value in seen],
                "var(--ink)",
                True,
                joined=False,
            )
        ],
    )
    for first, last in runs(known):
        chart.lines.append(Line("", [(at[i], points[i][1]) for i in range(first, last)]))
    days = sorted({(date - start).days for date in dates})
    chart.shades += [Shade(day + 0.5, later - 0.5) for day, later in pairwise(days) if later > day + 1]
    return Markup(chart.html(small=True, heading=title))


def _marks(start: datetime.date, end: datetime.date) -> list[tuple[float, str]]:
    """Return a few dates for the horizontal axis."""
    days = (end - start).days
    every = max(1, math.ceil(days / 4))
    return [
        (float(day), f"{start + datetime.timedelta(days=day):%m-%d}") for day in range(0, days + 1, every)
    ]
