"""Static pages: the report of a sketch, and the page of a plan. Released or predicted numbers alone.

They need neither the data nor the network, and are readable without JavaScript, on a phone and in print.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jinja2  # noqa: F401  (asked for before anything is computed)
import numpy as np
import pyarrow as pa
from markupsafe import Markup

from hushgram.errors import ParameterError
from hushgram.noise.laws import LaplaceLaw
from hushgram.numbers import counted, plus_minus, show
from hushgram.pipelines.pages import render
from hushgram.pipelines.pages.svg import Axis, Band, Chart, Line, Shade, percents
from hushgram.pipelines.pages.tables import (
    LEVEL,
    MAX_ASKED,
    MAX_ROWS,
    Whole,
    asked_keys,
    counts_all,
    everything,
    most_unlisted,
    ranked_keys,
)  # fmt: skip
from hushgram.pipelines.planning import prediction_lines, rows_of
from hushgram.pipelines.terminal import rounded
from hushgram.planner import COUNTS, Population, Prediction, bound_of, predict
from hushgram.sketch.reader import Sketch
from hushgram.sparse_histogram.sizing import PROFILE_GRID

if TYPE_CHECKING:
    from hushgram.ledger import ReleaseRecord, Summary

__all__ = ["budget_over_time", "make_plan_chart", "make_plan_page", "make_report", "runs"]


def make_report(
    sketch: Sketch,
    ledger: tuple[Summary, Sequence[ReleaseRecord]] | None = None,
    titles: Mapping[Any, str] | None = None,
) -> str:
    """Return the page as HTML.

    Args:
        sketch: the release.
        ledger: summary and history of the data set, for the budget over time.
        titles: keys with their titles, which may be empty: names for fingerprints, and more keys to look up.
    """
    body = sketch.manifest_json
    table, listed, whole = ranked_keys(sketch, titles)
    asked = asked_keys(sketch, titles, listed, whole) if titles else None
    return render(
        "report",
        name=sketch.manifest.release or sketch.path.name,
        guarantee=sketch.guarantee.sentence(),
        guarantee_parts=[f"{part.kind} ε = {show(part.epsilon)}" for part in sketch.guarantee.parts],
        note=f"{sketch.detection_limit().sentence().capitalize()}: its interval is at most as wide as the"
        f" {sketch.measure}.",
        measure=sketch.measure,
        tiles=_tiles(sketch),
        keys=table,
        keys_note=_keys_note(sketch, listed, len(table.rows)),
        asked=asked and asked[0],
        asked_note=asked and _asked_note(asked[0].rows, asked[1], len(titles or ())),
        others=_others(sketch, listed, whole),
        distribution=_distribution(sketch),
        kept=_kept(sketch),
        facts=_facts(sketch, body),
        files=body["files"],
        budget=None if ledger is None else budget_over_time(*ledger),
        **_errors(sketch),
    )


def _tiles(sketch: Sketch) -> list[tuple[str, str]]:
    apart = not sketch.plan.selection.by_count and sketch.plan.layout is not None
    single = "single key without a name" if apart else "single key"
    last = [
        (f"{sketch.size:,}", "bytes of sketch"),
        (f"{sketch.detection_limit().count:,}", f"detection limit ({sketch.measure} of a {single})"),
    ]
    if sketch.plan.layout is None:
        keys = "key" if sketch.manifest.heavy_rows == 1 else "keys"
        return [(f"{sketch.manifest.heavy_rows:,}", f"{keys}; nothing is released of others"), *last]
    different = "different keys beside the named ones" if apart else "different keys"
    records, keys = sketch.released_sizes()
    if apart and sketch.plan.sizes.scale:
        whole, per = everything(sketch), sketch.per_count
        half = math.ceil(max(whole.high - whole.estimate, whole.estimate - whole.low) / per) * per
        less = "less" if sketch.sums_values else "fewer"
        records = plus_minus(round(whole.estimate / per) * per, half, less)
    return [
        (records, "sum after bounding" if sketch.sums_values else "records after bounding"),
        (keys, different),
        *last,
    ]


def _keys_note(sketch: Sketch, listed: pa.Table, rows: int) -> str:
    total, false = listed.num_rows, sketch.expected_false()
    kind = "named" if sketch.plan.selection.texts else "heavy"
    if not total:
        return f"This release has no {kind} keys."
    number = f"All {total:,}" if total > 1 else "The only"
    shown = f"The {rows:,} largest of {total:,}" if total > rows else number
    if false:
        shown += f" {'keys that are' if total > 1 else 'key that is'} in the data with a probability of 95 % or more;"
        shown += f" {false:,.1f} of them are expected to be false."
    else:
        shown += f" {kind} keys; none of them is false." if total > 1 else f" {kind} key; it is not false."
    if "key" not in listed.column_names:
        shown += " This release has fingerprints in place of texts (delta = 0): name them with --keys-file."
    return shown


def _asked_note(rows: Sequence[Any], unresolved: int, titles: int) -> str:
    shown = f"The {len(rows):,} largest are shown. " if len(rows) >= MAX_ROWS else ""
    first = f"The first {MAX_ASKED:,} keys of the file were looked up; hushgram query takes more. "
    return (
        f"{first if titles > MAX_ASKED else ''}{shown}{counted(unresolved, 'key')} with an upper bound alone: the"
        " interval of each is wider than its estimate. Their total may be known: see hushgram total."
    )


def _others(sketch: Sketch, listed: pa.Table, whole: Whole | None) -> list[tuple[str, str]] | None:
    """Return what is known of the keys that are not listed; None where nothing was released."""
    try:
        total = sketch.others()
    except ParameterError:
        return None
    keys = plus_minus(total.keys, total.keys_error)
    sure = total.high - total.low <= total.estimate
    told = rounded(total.estimate if sure else None, total.low, total.high, sketch.per_count)
    about = f"{told[0]} ({told[1]} to {told[2]})"
    facts = [
        (
            f"{sketch.measure} of all other keys together",
            f"{about}, with probability {total.level:.0%}".replace("%", " %"),
        )
    ]
    if sure and whole is not None:
        share = whole.share(total.estimate, total.low, total.high)
        facts.append(("share of the total", str(share.html)))
    facts.append(("other keys", keys))
    wide = sketch.others(1.0 - (1.0 - total.level) / 2.0)  # total and number of keys hold at once
    if sure and 2 * wide.keys_error <= wide.keys:
        ends = wide.low / (wide.keys + wide.keys_error), wide.high / (wide.keys - wide.keys_error)
        mean = rounded(total.estimate / total.keys, *ends, 0.01 * sketch.per_count)
        facts.append((f"mean {sketch.measure} of one of them", f"{mean[0]} ({mean[1]} to {mean[2]})"))
    if sketch.plan.selection.by_count:
        least = sketch.plan.heavy_from * sketch.per_count
        what = f"keys whose noisy {sketch.measure} is below {least:,.10g}"
    else:
        what = "keys that were not selected"
    more = sketch.manifest.heavy_rows - listed.num_rows
    real = f", and {more:,} listed fingerprints that may be noise alone" if more else ""
    facts.append(("what they are", f"{what}{real}"))
    return facts


# --- charts -----------------------------------------------------------------------------------------------------


def _distribution(sketch: Sketch) -> dict[str, Any] | None:
    """Draw the number of keys with at least t records against t, where noise does not hide it; None where it does."""
    sizes = sketch.plan.sizes
    counts, number = sketch.distribution()
    above = np.cumsum(number[::-1])[::-1]
    shown = np.flatnonzero(above >= 0.5)
    if sketch.plan.layout is None or not sizes.profile or len(shown) < 2:
        return None
    per = float(sketch.per_count)  # values are sums of a column, or records
    part = 1.0 - (1.0 - LEVEL) / 3.0  # a band is where three intervals meet
    noise = LaplaceLaw(float(sizes.scale)).radius(part)
    records = max(sizes.records + noise, 1.0) * per
    listed = sketch.heavy(all=True, level=part)
    lows, highs = (np.sort(listed[name].to_numpy()) for name in ("low", "high"))
    apart = not sketch.plan.selection.by_count  # named keys are not in the released sizes
    all_listed = np.inf if apart else most_unlisted(sketch, part)
    top = float(counts[shown[-1]])
    tens = [per * 10.0**k for k in range(13)]
    grid = per * np.array(PROFILE_GRID, np.float64)
    at = np.unique([t for t in (*grid, *tens) if t <= top])
    least, most = (len(ends) - np.searchsorted(ends, at) for ends in (lows, highs))
    # The released numbers of keys around t are those of a larger and of a smaller count.
    before, after = np.searchsorted(grid, at, side="right") - 1, np.searchsorted(grid, at)
    profile = np.array(sizes.profile, np.float64)
    low = np.maximum(profile[after] - noise, 0.0)
    high = np.minimum(np.maximum(profile[before] + noise, 0.0), records / at)
    low, high = (low + least, high + most) if apart else (np.maximum(low, least), high)
    high = np.where(at > all_listed, np.minimum(high, most), high)
    agree = low <= high  # where intervals do not meet, one of them does not hold, and nobody knows which
    low = np.maximum(np.minimum(low, high), 0.5)
    high = np.maximum(high, low)
    keys = np.clip(above[np.searchsorted(counts, at)], low, high)
    known = agree & (high - low <= keys)
    drawn = [(first, end) for first, end in runs(known) if end - first > 1]
    if not drawn:
        return None
    bands = [
        [(float(at[i]), float(low[i]), float(high[i])) for i in range(first, end)] for first, end in drawn
    ]
    chart = Chart(
        f"Number of keys with at least this {sketch.measure}",
        Axis(
            f"{'sum' if sketch.sums_values else 'records'} of a key, at least",
            bands[0][0][0],
            bands[-1][-1][0],
            log=True,
        ),
        Axis(
            "keys",
            min(low for band in bands for _, low, _ in band),
            max(high for band in bands for *_, high in band),
            log=True,
        ),
        [Band(band) for band in bands],
        [
            Line("", list(zip(at[first:end].tolist(), keys[first:end].tolist(), strict=True)))
            for first, end in drawn
        ],
    )
    told = [i for first, end in drawn for i in range(first, end) if at[i] in tens or i in (first, end - 1)]
    rows = [(f"{at[i]:,.10g}", *_number_of_keys(keys[i], low[i], high[i])) for i in told]
    return {"chart": Markup(chart.html()), "rows": rows}


def _number_of_keys(keys: float, low: float, high: float) -> tuple[str, str]:
    about, least, most = rounded(keys, low if low > 0.5 else 0.0, high)
    return about, f"{least} to {most}"


def runs(flags: Any) -> list[tuple[int, int]]:
    """Return the first and one past the last place of each run of true flags."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


_MEASURED = "Measured on synthetic data of the same size and shape, released and decoded in the same way."
_COMPUTED = "Computed from the noise of this release and the distribution of counts that it shows."
_PUBLIC = "Computed from the noise of this release, which is the same for every key."


def _errors(sketch: Sketch) -> dict[str, Any]:
    """Return chart and table of the expected relative error; a count of the prediction stands for `per`."""
    per, what = sketch.per_count, sketch.measure
    if sketch.plan.selection.selects:
        predicted = predict(sketch.plan.params.stated, Population.like(sketch), set_sizes=())
        note = _MEASURED if predicted.named is None else _COMPUTED
        at = [(float(a.count * per), a.error * per, a.width * per) for a in predicted.at]
    else:
        law, note = sketch.plan.noise.law(float(sketch.plan.scale)), _PUBLIC
        error, width = law.variance**0.5 * per, 2.0 * law.interval(LEVEL) * per
        at = [(float(count * per), error, width) for count in COUNTS]
    resolved = [(count, error, width) for count, error, width in at if width <= count]
    rows = [
        (f"{n:,.10g}", _share(error / n), _share(width / 2 / n))
        if (n, error, width) in resolved
        else (f"{n:,.10g}", "–", f"< {n + width:,.0f}")
        for n, error, width in at
    ]
    return {
        "error_note": note,
        "error_chart": _error_chart(at, resolved, float(sketch.detection_limit().count), what)
        if resolved
        else None,
        "error_titles": [f"true {what}", "relative error", "95 % interval"],
        "errors": rows,
    }


def _share(part: float) -> str:
    return f"± {float(f'{100.0 * part:.2g}'):.10g} %"


def _error_chart(
    at: Sequence[tuple[float, float, float]],
    resolved: Sequence[tuple[float, float, float]],
    limit: float,
    what: str,
) -> Markup:
    """Draw errors as shares of the true count, from the detection limit on."""
    start, end = at[0][0], at[-1][0]
    edge = min(max(limit, start), end)

    def line(place: int, part: float) -> list[tuple[float, float]]:
        """Return the errors at counts from the limit on, with that at the limit itself, between its neighbours."""
        logs = np.log([[row[0], max(part * row[place], 1e-9)] for row in at])
        first = float(np.exp(np.interp(np.log(edge), logs[:, 0], logs[:, 1])))
        points = [(edge, first), *((n, part * (n, e, w)[place]) for n, e, w in at if n > edge)]
        return [(n, max(y, 1e-9) / n) for n, y in points]

    lines = [
        Line("root mean square error", line(1, 1.0)),
        Line("half of a 95 % interval", line(2, 0.5), "var(--second)"),
    ]
    least = min(y for one in lines for _, y in one.points) / 2.0
    most = max(1.0, max(y for one in lines for _, y in one.points))
    chart = Chart(
        f"Expected error as a share of the true {what}",
        Axis(f"true {what} of a key", start, end, log=True),
        Axis(f"error / {what}", least, most, True, percents(least, most)),
        lines=lines,
        shades=[Shade(start, edge, "below the detection limit")] if edge > start else [],
    )
    return Markup(chart.html())


# --- facts ------------------------------------------------------------------------------------------------------


def _kept(sketch: Sketch) -> list[str]:
    """Describe what contribution bounding kept, as far as the release shows it; a released share belongs here."""
    plan = sketch.plan
    if (kept := sketch.kept_in_words()) is not None:
        return [f"{kept[0].upper()}{kept[1:]}."]
    if counts_all(sketch):
        return ["Everything: the privacy unit is one record, and every record counts."]
    most, each = (n * sketch.per_count for n in (plan.params.max_contributions, plan.params.max_per_key))
    per_key = f", {each:,.10g} of them for one key" if plan.params.max_per_key > 1 else ""
    records = "" if sketch.sums_values else " records"
    bounds = f"at most {most:,.10g}{records}"
    return [
        f"One {plan.unit} contributes {bounds}{per_key}. Whatever exceeded that is missing from all counts here; how"
        " much of it a single key lost is not known."
    ]


def _facts(sketch: Sketch, body: dict[str, Any]) -> list[tuple[str, str]]:
    made = datetime.datetime.fromtimestamp((sketch.path / "manifest.json").stat().st_mtime, datetime.UTC)
    params = sketch.plan.params
    facts = [("written", f"{made:%Y-%m-%d %H:%M} UTC (time of the manifest file)")]
    stated = params.stated.to_dict()
    sizes = stated.pop("sizes", {})
    stated.pop("selection", None)
    shown = {
        **stated,
        **{f"stated {name}": size for name, size in sizes.items()},
        "max_contributions": params.max_contributions * params.per_count,
        "max_per_key": params.max_per_key * params.per_count,  # in the unit of all other numbers here
        "key_selection": params.selection,
        "noise": sketch.plan.noise_name,
    }
    facts += [
        (name.replace("_", " "), show(value) if hasattr(value, "numerator") else str(value))
        for name, value in shown.items()
    ]
    facts.append(("format", f"{body['format']} {body['version']}"))
    facts.append(("checksum of the manifest", str(body["checksum"])))
    return facts


def budget_over_time(summary: Summary, history: Sequence[ReleaseRecord]) -> dict[str, Any]:
    """Return chart, rows and a sentence about the budget of a data set."""
    rows: list[dict[str, str]] = []
    points = [(0.0, 0.0)]
    running = 0.0
    for release in history:
        epsilon = float(sum(event.epsilon for event in release.events)) if release.charged else 0.0
        delta = float(sum(event.delta for event in release.events)) if release.charged else 0.0
        running += epsilon
        points.append((float(len(points)), running))
        rows.append(
            {
                "name": release.name,
                "when": release.reserved,
                "status": release.status,
                "epsilon": f"{epsilon:g}",
                "delta": f"{delta:g}",
                "sum": f"{running:g}",
            }
        )
    limit, last = float(summary.budget_epsilon), max(len(points) - 1.0, 5.0)
    chart = Chart(
        "Sum of epsilon over releases",
        Axis("releases", 0.0, last),
        Axis("epsilon", 0.0, max(limit, running) * 1.05),
        [],
        [
            Line("spent", points, dots=len(points) < 60),
            Line("budget", [(0.0, limit), (last, limit)], "var(--bad)", dashed=True),
        ],
        (0.75, 0.3),
    )
    note = (
        f"Data set {summary.dataset}: ε = {summary.spent_epsilon} of {summary.budget_epsilon} spent,"
        f" {summary.left_epsilon} left."
    )
    return {"rows": rows, "chart": Markup(chart.html()), "note": note}


# --- plan -------------------------------------------------------------------------------------------------------

_COLOURS = ("var(--accent)", "var(--second)", "var(--third)", "var(--bad)")


def make_plan_page(population: Population, found: Sequence[Prediction], best: Prediction, why: str) -> str:
    """Return the page as HTML."""
    users = "" if population.users is None else f" of {counted(population.users, 'user')}"
    return render(
        "plan",
        about=f"{counted(population.records, 'record')}{users} and {counted(population.keys, 'different key')}",
        how="synthetic counts of this shape were released and decoded."
        if best.named is None
        else "errors follow from noise, thresholds and the shape of such data.",
        why=why,
        predicted=list(prediction_lines(best, population)),
        chart=Markup(_chart(best, found).html()),
        bounds=None if (chart := _bounds(best, found)) is None else Markup(chart.html()),
        counts=COUNTS,
        sets=[total.keys for total in best.totals],
        rows=[{**row, "best": one is best} for row, one in zip(rows_of(found), found, strict=True)],
    )


def make_plan_chart(population: Population, found: Sequence[Prediction], best: Prediction, why: str) -> str:
    """Return the chart of the plan as an SVG file."""
    return _chart(best, found).file()


def _bounds(best: Prediction, found: Sequence[Prediction]) -> Chart | None:
    """Draw the mean relative error against C, if several were tried."""
    points = sorted(
        (float(one.params.max_contributions), one.score)
        for one in found
        if one.params.epsilon == best.params.epsilon and one.params.max_contributions is not None
    )
    least, most = (points[0][0], points[-1][0]) if points else (0.0, 0.0)
    if most == least:
        return None
    return Chart(
        "Mean relative error against max_contributions",
        Axis("max_contributions (C)", least, most, log=True),
        Axis("mean relative error", 0.0, 1.0),
        [],
        [Line("mean relative error", points, _COLOURS[0], dots=True)],
        (0.0, 0.4),
    )


def _chart(best: Prediction, found: Sequence[Prediction]) -> Chart:
    """Draw the relative error against the count, for the settings of the recommended ε, the best four."""
    chosen = sorted(
        (one for one in found if one.params.epsilon == best.params.epsilon), key=lambda one: one.score
    )[: len(_COLOURS)]
    lines = [
        Line(
            f"C = {bound_of(one.params)}",
            [(float(a.count), max(a.error / a.count, 1e-4)) for a in one.at],
            _COLOURS[i % len(_COLOURS)],
            dots=True,
        )
        for i, one in enumerate(chosen)
    ]
    top = max(y for line in lines for _, y in line.points)
    low = min(y for line in lines for _, y in line.points)
    return Chart(
        "Relative error of a lookup against the true count",
        Axis("true count of a key", 1.0, float(COUNTS[-1]), log=True),
        Axis("error / count", low / 4, max(top, 1.0) * 1.5, log=True),
        [],
        lines,
        (0.0, 0.45),
    )
