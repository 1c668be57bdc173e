"""Static pages: the report of a sketch, and the page of a plan. Released or predicted numbers alone.

They need neither the data nor the network, and are readable without JavaScript, on a phone and in print.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jinja2  # noqa: F401  (asked for before anything is computed)
import numpy as np
from markupsafe import Markup

from hushgram.errors import ParameterError
from hushgram.noise.laws import LaplaceLaw
from hushgram.numbers import plus_minus, show
from hushgram.pipelines.pages import render
from hushgram.pipelines.pages.svg import Axis, Band, Chart, Line
from hushgram.pipelines.planning import prediction_lines, rows_of
from hushgram.pipelines.terminal import rounded
from hushgram.planner import COUNTS, Population, Prediction, predict
from hushgram.sketch.reader import Sketch

if TYPE_CHECKING:
    from hushgram.ledger import ReleaseRecord, Summary

__all__ = ["make_plan_chart", "make_plan_page", "make_report"]

MAX_ROWS = 1_000
_LEVEL = 0.95


def make_report(sketch: Sketch, ledger: tuple[Summary, Sequence[ReleaseRecord]] | None = None) -> str:
    """Return the page as HTML."""
    body = sketch.manifest_json
    return render(
        "report",
        name=sketch.manifest.release or sketch.path.name,
        guarantee=sketch.guarantee.sentence(),
        parts=[f"{part.kind} ε = {show(part.epsilon)}" for part in sketch.guarantee.parts],
        level=f"{_LEVEL:.0%}",
        note=f"{sketch.detection_limit().sentence().capitalize()}: its interval is at most as wide as the"
        f" {sketch.measure}.",
        measure=sketch.measure,
        distribution=_distribution(sketch),
        cut=_cut(sketch),
        facts=_facts(sketch, body),
        files=body["files"],
        budget=None if ledger is None else _budget(*ledger),
        tiles=_tiles(sketch),
        **_heavy(sketch),
        **_errors(sketch),
    )


def _tiles(sketch: Sketch) -> list[tuple[str, str]]:
    last = [
        (f"{sketch.size:,}", "bytes of sketch"),
        (f"{sketch.detection_limit().count:,}", f"detection limit ({sketch.measure} of a single key)"),
    ]
    if sketch.plan.layout is None:
        return [(f"{sketch.manifest.heavy_rows:,}", "keys; nothing is released of others"), *last]
    different = "different keys" if sketch.plan.rounds is None else "different keys beside the named ones"
    records, keys = sketch.released_sizes()
    return [
        (records, "sum after bounding" if sketch.sums_values else "records after bounding"),
        (keys, different),
        *last,
    ]


def _heavy(sketch: Sketch) -> dict[str, Any]:
    table = sketch.heavy()
    names = "key" in table.column_names
    order = [("value", "descending"), ("fingerprint", "ascending")]
    table = table.sort_by(order)
    total = table.num_rows
    table = table.slice(0, MAX_ROWS)
    values = table["value"].to_numpy().astype(np.float64)
    low, high = (table[name].to_numpy() if name in table.column_names else values for name in ("low", "high"))
    keys = table["key"].to_pylist() if names else table["fingerprint"].to_pylist()
    top = float(high.max()) if len(high) else 1.0
    shown = f"The {len(values):,} largest of {total:,}" if total > len(values) else f"All {total:,}"
    false = sketch.expected_false()
    shown += (
        f" keys that are in the data with a probability of 95 % or more; {false:,.1f} of them are expected to be false."
        if false
        else f" {'named' if names else 'heavy'} keys; none of them is false."
    )
    return {
        "rows": [
            _row(k, v, a, b, top, sketch.per_count)
            for k, v, a, b in zip(_texts(keys), values, low, high, strict=True)
        ],
        "others": _others(sketch),
        "key_title": "key" if names else "fingerprint of the key",
        "heavy_note": shown,
    }


def _others(sketch: Sketch) -> str | None:
    """Return a sentence about the total of keys that the report does not name; None where it was not released."""
    try:
        total = sketch.others(limit=MAX_ROWS)
    except ParameterError:
        return None
    about, low, high = rounded(total.estimate, total.low, total.high, sketch.per_count)
    return (
        f"All other keys together: {about} ({low} to {high} with probability {total.level:.0%}),"
        f" {plus_minus(total.keys, total.keys_error)} keys."
    )


def _texts(keys: Sequence[Any]) -> list[str]:
    return [key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key) for key in keys]


def _row(key: str, value: float, low: float, high: float, top: float, finest: float) -> dict[str, str]:
    told = rounded(value, max(low, 0.0), high, finest)
    at, start, end = (100 * max(x, 0.0) / max(top, 1.0) for x in (value, low, high))
    return {
        "key": key,
        **dict(zip(("estimate", "low", "high"), told, strict=True)),
        "at": f"{at:.2f}",
        "from": f"{start:.2f}",
        "wide": f"{max(end - start, 0.3):.2f}",
    }


def _distribution(sketch: Sketch) -> Markup | None:
    """Draw keys with at least t records against t, with the band of the noise; both axes logarithmic."""
    sizes = sketch.plan.sizes
    counts, number = sketch.distribution()
    above = np.cumsum(number[::-1])[::-1]
    shown = np.flatnonzero(above >= 0.5)
    if sketch.plan.layout is None or not sizes.profile or len(shown) < 2:
        return None
    noise = LaplaceLaw(float(sizes.scale)).radius(_LEVEL)
    values = np.sort(sketch.heavy(all=True)["value"].to_numpy())
    per = float(sketch.per_count)  # values are sums of a column, or records
    reach, threshold = per * sketch.decoder.released.noise.radius(_LEVEL), per * sketch.plan.threshold

    def band(t: float, n: float) -> tuple[float, float]:
        """Return the band by the noise of the sizes; well above the threshold by that of the listed values."""
        low, high = n - noise, n + noise
        if t - reach > threshold + reach:
            below = np.searchsorted(values, (t + reach, t - reach))
            low, high = (float(v) for v in (np.clip(len(values) - below, low, high)))
        return max(min(low, n), 0.5), max(high, n)

    chosen = np.unique(np.geomspace(1, len(shown), min(len(shown), 120)).astype(int)) - 1
    points = [(float(counts[i]), float(above[i])) for i in shown[chosen]]
    low, high = np.array([band(t, n) for t, n in points]).T
    low = np.maximum.accumulate(low[::-1])[::-1]  # the numbers themselves only fall
    high = np.minimum.accumulate(high)
    chart = Chart(
        f"Number of keys with at least this {sketch.measure}",
        Axis(
            f"{'sum' if sketch.sums_values else 'records'} of a key, at least", per, points[-1][0], log=True
        ),
        Axis("keys", 0.5, max(points[0][1] + noise, 10.0), log=True),
        [Band(list(zip((t for t, _ in points), low, high, strict=True)))],
        [Line("keys", points)],
    )
    return Markup(chart.svg())


def _cut(sketch: Sketch) -> str:
    """Describe what contribution bounding removed from the counts, as far as the release shows it."""
    plan = sketch.plan
    if plan.totals is not None:
        return f"{plan.totals.in_words(plan.params.max_contributions, sketch.per_count).capitalize()}."
    if plan.unit == "record":
        return "Nothing: the privacy unit is one record, and every record counts."
    most, each = (n * sketch.per_count for n in (plan.params.max_contributions, plan.params.max_per_key))
    per_key = f", {each:,.10g} of them for one key" if plan.params.max_per_key > 1 else ""
    records = "" if sketch.sums_values else " records"
    return (
        f"One user contributes at most {most:,.10g}{records}{per_key}. Whatever exceeded that is"
        " missing from all counts here, mostly from popular keys. This release does not say how much it"
        " was; a release with max_contributions: auto does."
    )


_MEASURED = "Measured on synthetic data of the same size and shape, released and decoded in the same way."
_COMPUTED = "Computed from the noise of this release and the distribution of counts that it shows."
_PUBLIC = "Computed from the noise of this release, which is the same for every key."


def _errors(sketch: Sketch) -> dict[str, Any]:
    """Return chart and table of the expected error; a count of the prediction stands for `per`."""
    per, what = sketch.per_count, sketch.measure
    if sketch.plan.selection.selects:
        predicted = predict(sketch.plan.params, Population.like(sketch), set_sizes=())
        note = _MEASURED if predicted.named is None else _COMPUTED
        at = [(float(a.count * per), a.error * per, a.width * per) for a in predicted.at]
    else:
        law, note = sketch.plan.noise.law(float(sketch.plan.scale)), _PUBLIC
        error, width = law.variance**0.5 * per, 2.0 * law.interval(_LEVEL) * per
        at = [(float(count * per), error, width) for count in COUNTS]
    points = [(count, max(error, 0.1 * per)) for count, error, _ in at]
    widths = [(count, max(width / 2, 0.1 * per)) for count, _, width in at]
    top = at[-1][0]
    high = max(y for _, y in [*points, *widths, (0.0, top / 10)])
    end = min(top, high)  # where the line leaves the chart
    chart = Chart(
        f"Expected error at a true {what}",
        Axis(f"true {what} of a key", float(per), top, log=True),
        Axis("error", 0.5 * per, high, log=True),
        [],
        [
            Line("root mean square error", points, dots=True),
            Line("half the width of an interval", widths, "var(--second)", dots=True),
            Line(f"the {what} itself", [(float(per),) * 2, (end,) * 2], "var(--soft)", dashed=True),
        ],
    )
    return {
        "error_note": note,
        "error_chart": Markup(chart.svg()),
        "error_titles": [f"true {what}", "root mean square error", "width of a 95 % interval"],
        "errors": [(f"{n:,.10g}", f"± {error:,.1f}", f"{width:,.0f}") for n, error, width in at],
    }


# parameters that a release of public keys uses
_PUBLIC_FACTS = ("epsilon", "delta", "max_contributions", "max_per_key", "noise", "granularity")


def _facts(sketch: Sketch, body: dict[str, Any]) -> list[tuple[str, str]]:
    made = datetime.datetime.fromtimestamp((sketch.path / "manifest.json").stat().st_mtime, datetime.UTC)
    params = sketch.plan.params
    facts = [("written", f"{made:%Y-%m-%d %H:%M} UTC (time of the manifest file)")]
    shown = {**params.to_dict(), "max_contributions": params.max_contributions * params.per_count}
    shown["max_per_key"] = params.max_per_key * params.per_count  # in the unit of all other numbers here
    used = shown if sketch.plan.selection.selects else _PUBLIC_FACTS
    facts += [
        (name.replace("_", " "), show(value) if hasattr(value, "numerator") else str(value))
        for name, value in shown.items()
        if name != "split" and value is not None and name in used
    ]
    facts.append(("format", f"{body['format']} {body['version']}"))
    facts.append(("checksum of the manifest", str(body["checksum"])))
    return facts


def _budget(summary: Summary, history: Sequence[ReleaseRecord]) -> dict[str, Any]:
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
    return {"rows": rows, "chart": Markup(chart.svg()), "note": note}


# --- plan -------------------------------------------------------------------------------------------------------

_COLOURS = ("var(--accent)", "var(--second)", "var(--third)", "var(--bad)")


def make_plan_page(population: Population, found: Sequence[Prediction], best: Prediction, why: str) -> str:
    """Return the page as HTML."""
    users = "" if population.users is None else f" of {population.users:,} users"
    return render(
        "plan",
        about=f"{population.records:,} records{users} and {population.keys:,} different keys",
        how="synthetic counts of this shape were released and decoded."
        if best.named is None
        else "errors follow from noise, thresholds and the shape of such data.",
        why=why,
        predicted=list(prediction_lines(best, population)),
        chart=Markup(_chart(best, found).svg()),
        bounds=None if (chart := _bounds(best, found)) is None else Markup(chart.svg()),
        counts=COUNTS,
        sets=[total.keys for total in best.totals],
        rows=[{**row, "best": one is best} for row, one in zip(rows_of(found), found, strict=True)],
    )


def make_plan_chart(population: Population, found: Sequence[Prediction], best: Prediction, why: str) -> str:
    """Return the chart of the plan as an SVG file."""
    return _chart(best, found).file()


def _bounds(best: Prediction, found: Sequence[Prediction]) -> Chart | None:
    """Draw the mean relative error against C, if several were tried."""
    lines: list[Line] = []
    for kind in dict.fromkeys(one.label for one in found):
        points = sorted(
            (float(one.params.max_contributions), one.score)
            for one in found
            if one.label == kind and one.params.epsilon == best.params.epsilon
        )
        lines.append(Line(kind, points, _COLOURS[len(lines) % len(_COLOURS)], dots=True))
    most = max(x for line in lines for x, _ in line.points)
    least = min(x for line in lines for x, _ in line.points)
    if most == least:
        return None
    return Chart(
        "Mean relative error against max_contributions",
        Axis("max_contributions (C)", least, most, log=True),
        Axis("mean relative error", 0.0, 1.0),
        [],
        lines,
        (0.0, 0.4),
    )


def _chart(best: Prediction, found: Sequence[Prediction]) -> Chart:
    """Draw the relative error against the count, for the settings of the recommended ε and C."""
    chosen = [
        one
        for one in found
        if one.params.epsilon == best.params.epsilon
        and one.params.max_contributions == best.params.max_contributions
    ]
    lines = [
        Line(
            one.label,
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
