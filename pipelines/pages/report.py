"""The report of a sketch: one page that holds everything, made of released numbers alone.

It needs neither the data nor the network, is readable without JavaScript, on a phone and in print.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from hushgram.numbers import show
from hushgram.pipelines.pages.svg import Axis, Band, Chart, Line
from hushgram.pipelines.pages.templating import render
from hushgram.planner import COUNTS, Population, Prediction, predict
from hushgram.sketch.reader import Sketch

if TYPE_CHECKING:
    from hushgram.ledger import Release, Summary

__all__ = ["make_report"]

MOST_ROWS = 1_000
_LEVEL = 0.95
_NORMAL = 1.96


def make_report(sketch: Sketch, ledger: tuple[Summary, Sequence[Release]] | None = None) -> str:
    """The page as text."""
    body = sketch.manifest_json
    predicted = predict(sketch.plan.params, Population.like(sketch), sets=())
    return render(
        "report",
        name=sketch.manifest.release or sketch.path.name,
        guarantee=sketch.guarantee.sentence(),
        parts=[f"{part.name} ε = {show(part.epsilon)}" for part in sketch.guarantee.parts],
        level=f"{_LEVEL:.0%}",
        notes=[f"{sketch.resolution().sentence().capitalize()}."],
        distribution=_distribution(sketch),
        cut=_cut(sketch),
        facts=_facts(sketch, body),
        files=body["files"],
        budget=None if ledger is None else _budget(*ledger),
        tiles=_tiles(sketch),
        **_heavy(sketch),
        **_errors(predicted, sketch.per_count),
    )


def _tiles(sketch: Sketch) -> list[tuple[str, str]]:
    sizes = sketch.plan.sizes
    noise = _NORMAL * float(sizes.scale) * 2**0.5
    spread = f" ± {noise:,.0f}" if sizes.scale else ""
    return [
        (_sum(sketch, noise), "sum after bounding" if sketch.sums_values else "records after bounding"),
        (f"{max(sizes.keys, 0):,}{spread}", "different keys"),
        (f"{sketch.size:,}", "bytes of sketch"),
        (f"from {sketch.resolution().count:,}", "a single key's count is known to its half"),
    ]


def _sum(sketch: Sketch, noise: float) -> str:
    sizes, per = sketch.plan.sizes, sketch.per_count
    return f"{max(sizes.records, 0) * per:,}" + (f" ± {noise * per:,.0f}" if sizes.scale else "")


def _heavy(sketch: Sketch) -> dict[str, Any]:
    table = sketch.heavy()
    names = "key" in table.column_names
    order = [("value", "descending"), ("fingerprint", "ascending")]
    table = table.sort_by(order)
    total = table.num_rows
    table = table.slice(0, MOST_ROWS)
    values = table["value"].to_numpy().astype(np.float64)
    low, high = (table[name].to_numpy() if name in table.column_names else values for name in ("low", "high"))
    keys = table["key"].to_pylist() if names else [f"{v:016x}" for v in table["fingerprint"].to_pylist()]
    top = float(high.max()) if len(high) else 1.0
    shown = f"The {len(values):,} largest of {total:,}" if total > len(values) else f"All {total:,}"
    false = sketch.expected_false()
    shown += (
        f" that are real with 95 % or more; {false:,.1f} of them are expected to be false."
        if false
        else " listed keys; none of them is false."
    )
    return {
        "rows": [_row(k, v, a, b, top) for k, v, a, b in zip(_texts(keys), values, low, high, strict=True)],
        "key_title": "key" if names else "fingerprint of the key",
        "heavy_note": shown,
    }


def _texts(keys: Sequence[Any]) -> list[str]:
    return [key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key) for key in keys]


def _row(key: str, value: float, low: float, high: float, top: float) -> dict[str, str]:
    at, start, end = (100 * max(x, 0.0) / max(top, 1.0) for x in (value, low, high))
    return {
        "key": key,
        "estimate": f"{value:,.0f}",
        "low": f"{max(low, 0.0):,.0f}",
        "high": f"{high:,.0f}",
        "at": f"{at:.2f}",
        "from": f"{start:.2f}",
        "wide": f"{max(end - start, 0.3):.2f}",
    }


def _distribution(sketch: Sketch) -> Markup | None:
    """Keys with at least t records against t, with the band of the noise; both axes logarithmic."""
    sizes = sketch.plan.sizes
    counts, number = sketch.distribution()
    above = np.cumsum(number[::-1])[::-1]
    shown = np.flatnonzero(above >= 0.5)
    if not sizes.profile or len(shown) < 2:
        return None
    noise = _NORMAL * float(sizes.scale) * 2**0.5
    values = np.sort(sketch.heavy(all=True)["value"].to_numpy())
    per = float(sketch.per_count)  # values are sums of a column, or records
    reach, threshold = per * sketch.decoder.released.noise.radius(_LEVEL), per * sketch.plan.threshold

    def band(t: float, n: float) -> tuple[float, float]:
        """By the noise of the sizes; well above the threshold by the list, whose values have noise of their own."""
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
        "Number of keys with at least so many records",
        Axis(
            f"{'sum' if sketch.sums_values else 'records'} of a key, at least", per, points[-1][0], log=True
        ),
        Axis("keys", 0.5, max(points[0][1] + noise, 10.0), log=True),
        [Band(list(zip((t for t, _ in points), low, high, strict=True)))],
        [Line("keys", points)],
    )
    return Markup(chart.svg())


def _cut(sketch: Sketch) -> str:
    """What holding users to their bound took from the counts, as far as the release tells."""
    plan = sketch.plan
    if plan.totals is not None:
        return f"{plan.totals.in_words(plan.params.max_contributions, sketch.per_count).capitalize()}."
    if plan.unit == "record":
        return "Nothing: each record is protected for itself, and all of them count."
    most, each = (n * sketch.per_count for n in (plan.params.max_contributions, plan.params.max_per_key))
    per_key = f", {each:,} of them for one key" if plan.params.max_per_key > 1 else ""
    return (
        f"A user counts for at most {most:,}{'' if sketch.sums_values else ' records'}{per_key}; what was above that is"
        " missing from all counts here, mostly from those of popular keys. How much it was is not part of this release:"
        " one with max_contributions auto tells it."
    )


def _errors(predicted: Prediction, per: int | float) -> dict[str, Any]:
    """What error to expect; a count of the prediction stands for `per`."""
    rows = [(f"{a.count * per:,}", f"± {a.error * per:,.1f}", f"{a.width * per:,.0f}") for a in predicted.at]
    points = [(float(a.count * per), max(a.error, 0.1) * per) for a in predicted.at]
    widths = [(float(a.count * per), max(a.width / 2, 0.1) * per) for a in predicted.at]
    top = float(COUNTS[-1] * per)
    chart = Chart(
        "Expected error at a true count",
        Axis("true count of a key", float(per), top, log=True),
        Axis("error", 0.5 * per, max(y for _, y in [*points, *widths, (0.0, top / 10)]), log=True),
        [],
        [
            Line("root mean square error", points, dots=True),
            Line("half of an interval", widths, "var(--second)", dots=True),
            Line("the count itself", [(float(per),) * 2, (top,) * 2], "var(--soft)", dashed=True),
        ],
    )
    return {
        "error_note": "Found by a made-up data set of the same size and shape, released and decoded in the same way.",
        "error_chart": Markup(chart.svg()),
        "error_titles": ["true count", "root mean square error", "width of an interval"],
        "errors": rows,
    }


def _facts(sketch: Sketch, body: dict[str, Any]) -> list[tuple[str, str]]:
    made = datetime.datetime.fromtimestamp((sketch.path / "manifest.json").stat().st_mtime, datetime.UTC)
    params = sketch.plan.params
    facts = [("written", f"{made:%Y-%m-%d %H:%M} UTC (time of the manifest file)")]
    facts += [
        (name.replace("_", " "), show(value) if hasattr(value, "numerator") else str(value))
        for name, value in params.as_text().items()
        if name != "split" and value is not None
    ]
    facts.append(("format", f"{body['format']} {body['version']}"))
    facts.append(("checksum of the manifest", str(body["checksum"])))
    return facts


def _budget(summary: Summary, history: Sequence[Release]) -> dict[str, Any]:
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
