"""Draw the figures of README and docs: `python -m tools.figures` writes docs/figures/*.svg, always the same bytes.

    odds            what ε means: the confidence of a guess
    contributions   error against C: noise and bounding
    kept            share of records kept by contribution bounding
    delta           threshold of key selection against δ
    releases        number of releases that fit a budget
    flow            from files to answers
    result          estimates of ten keys of a release of synthetic page views, with the true counts

Write some of them: `python -m tools.figures odds delta`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from html import escape
from pathlib import Path

import numpy as np

import hushgram as hg
from hushgram.accounting import Budget, Event, further
from hushgram.key_selection.weighted import WHOLE
from hushgram.pipelines.pages.svg import Axis, Chart, Line, as_file
from hushgram.pipelines.synthetic import PageViews
from hushgram.pipelines.terminal import rounded
from hushgram.planner import Population, predict
from hushgram.sparse_histogram.plan import make_plan
from hushgram.sparse_histogram.sizing import Sizes

FOLDER = Path(__file__).parents[1] / "docs" / "figures"
COLOURS = ("var(--accent)", "var(--second)", "var(--third)", "var(--bad)")


def odds() -> str:
    """Plot e^ε times the prior odds, as a probability."""
    at = np.linspace(0.0, 6.0, 121)
    lines = []
    for number, (others, name) in enumerate(
        ((1, "1 : 1"), (9, "1 : 9"), (99, "1 : 99"), (9_999, "1 : 9,999"))
    ):
        points = [(float(e), math.exp(e) / (math.exp(e) + others)) for e in at]
        lines.append(Line(f"prior odds {name}", points, COLOURS[number]))
    x, y = Axis("ε", 0.0, 6.0), Axis("probability that the guess is right", 0.0, 1.0)
    return Chart("Confidence of a guess after a release, at most", x, y, [], lines, (0.66, 0.4)).file()


def contributions() -> str:
    """Plot the planner's error of a key that has 1,000 records before users are bounded to C."""
    population = Population.zipf(100_000, 5_000_000, users=500_000)
    bounds = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    lines = []
    for number, (noise, delta) in enumerate((("Laplace", "0"), ("Gaussian", "1e-6"))):
        points = []
        for bound in bounds[number:]:  # with C = 1 there is no Gaussian noise
            params = hg.ReleaseParams(epsilon=1, delta=delta, max_contributions=bound)
            found = predict(params, population, (1_000,), set_sizes=())
            points.append((float(bound), found.at[0].uncut_error))
        lines.append(Line(f"{noise} noise and bounding, δ = {delta}", points, COLOURS[number], dots=True))
    cut = [(float(bound), 1_000.0 * (1.0 - population.kept(bound))) for bound in bounds]
    lines.append(Line("bounding alone", cut, COLOURS[2], dashed=True))
    x, y = Axis("C (max_contributions)", 1.0, 256.0, log=True), Axis("error at 1,000 records", 0.0, 1_400.0)
    return Chart("Error of a key of 1,000 records against C, at ε = 1", x, y, [], lines).file()


def kept() -> str:
    """Plot the share kept of users with Pareto activity of tail 1.2."""
    bounds = np.unique(np.geomspace(1, 500, 60).astype(int))
    lines = []
    for number, mean in enumerate((3, 10, 50)):
        population = Population.zipf(1_000, 100_000 * mean, users=100_000)
        points = [(float(bound), population.kept(int(bound))) for bound in bounds]
        lines.append(Line(f"{mean} records per user", points, COLOURS[number]))
    x, y = (
        Axis("C (max_contributions)", 1.0, 500.0, log=True),
        Axis("share of records kept", 0.0, 1.0),
    )
    return Chart("Records kept by contribution bounding", x, y, [], lines).file()


def delta() -> str:
    """Plot from how many users on a key is named, as the parameters of a release state it."""
    sizes = Sizes(5_000_000, 100_000, (), Fraction(0))

    def stated(power: int, most: int) -> hg.ReleaseParams:
        return hg.ReleaseParams(
            epsilon=1, delta=f"1e-{power}", max_contributions=most, sizes=(sizes.records, sizes.keys)
        )

    def counted(power: int, most: int) -> float:
        return float(make_plan(stated(power, most).resolve(weights=False), sizes).heavy_from)

    def weighed(power: int, most: int) -> float:
        params = stated(power, most).resolve().with_rounds(3)
        return params.gaussian.selection.rounds[-1].threshold / WHOLE

    ways: tuple[tuple[str, Callable[[int, int], float], int], ...] = (
        ("threshold, C = 1", counted, 1),
        ("threshold without users, C = 8", counted, 8),
        ("weights, any C, users with one key", weighed, 8),
    )
    lines = []
    for number, (name, level, most) in enumerate(ways):
        points = [(float(power), level(power, most)) for power in range(3, 13)]
        lines.append(Line(name, points, COLOURS[number], dots=True))
    x, y = Axis("−log₁₀ δ", 3.0, 12.0), Axis("users of a key", 0.0, 300.0)
    return Chart("Threshold of key selection against δ, at ε = 1", x, y, [], lines).file()


def releases() -> str:
    """Plot the composition rules of the ledger for a budget of ε = 10."""
    each = [round(0.01 * 10 ** (i / 8), 4) for i in range(17)]
    rules = (
        ("basic composition, δ = 0", Budget("10", 0, "basic")),
        ("filter, δ = 1e-6: adaptive releases", Budget("10", "1e-6", "filter")),
        ("best, δ = 1e-6: scheduled releases only", Budget("10", "1e-6", "best")),
    )
    lines = []
    for number, (name, budget) in enumerate(rules):
        points = [(e, float(further([], [Event("laplace", str(e))], budget))) for e in each]
        lines.append(Line(name, [p for p in points if p[1] >= 1], COLOURS[number]))
    x = Axis("ε of one release", each[0], each[-1], log=True)
    y = Axis("releases (at most 1,000 shown)", 1.0, 2_000.0, log=True)
    return Chart("How many releases fit a budget of ε = 10", x, y, [], lines, (0.0, 0.3)).file()


def flow() -> str:
    """Draw boxes and arrows: exact and private left of the dashed line, released right of it."""
    boxes = [
        (10, 62, 86, "files", "Parquet, CSV,", "JSON, logs"),
        (126, 62, 100, "bound users", "at most C", "records each"),
        (256, 62, 100, "histogram", "exact counts", "of all keys"),
        (402, 6, 112, "noisy sizes", "records, keys,", "profile"),
        (402, 68, 112, "threshold", "heavy keys", "with noise"),
        (402, 130, 112, "encoding", "ALP or buckets,", "all other keys"),
        (560, 62, 86, "sketch", "one small", "directory"),
        (676, 62, 116, "answers", "query, total, heavy", "report, explore"),
    ]
    out = []
    for x, y, wide, title, *rest in boxes:
        colour = "var(--soft)" if x < 400 else "var(--accent)"
        out.append(f'<rect x="{x}" y="{y}" width="{wide}" height="52" rx="6" fill="none" stroke="{colour}"/>')
        middle = x + wide / 2
        out.append(f'<text x="{middle}" y="{y + 17}" text-anchor="middle" font-weight="600">{title}</text>')
        for line, text in enumerate(rest):
            place = f'x="{middle}" y="{y + 32 + 13 * line}"'
            out.append(f'<text {place} text-anchor="middle" font-size="11">{text}</text>')
    arrows = [
        (96, 88, 126, 88), (226, 88, 256, 88), (356, 82, 402, 34), (356, 88, 402, 94), (356, 94, 402, 154),
        (514, 34, 560, 80), (514, 94, 560, 88), (514, 154, 560, 96), (646, 88, 676, 88),
    ]  # fmt: skip
    out += [
        f'<line x1="{a}" y1="{b}" x2="{c}" y2="{d}" stroke="var(--ink)" marker-end="url(#tip)"/>'
        for a, b, c, d in arrows
    ]
    tip = '<path d="M0 0L8 4L0 8z" fill="var(--ink)"/>'
    size = 'refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"'
    marker = f'<defs><marker id="tip" {size}>{tip}</marker></defs>'
    out.append('<line x1="379" y1="4" x2="379" y2="206" stroke="var(--bad)" stroke-dasharray="5 4"/>')
    for x, anchor, text in (
        (370, "end", "exact and private: stays inside the job"),
        (388, "start", "released: (ε, δ)-differentially private, free to query"),
    ):
        out.append(f'<text x="{x}" y="202" text-anchor="{anchor}" font-size="12">{text}</text>')
    return as_file("From files to answers", marker + "".join(out), 802, 212)


def result() -> str:
    """Draw bars with intervals, and the true counts, which only synthetic data have, as lines."""
    views = PageViews(rows=400_000, urls=20_000, users=1_000_000)
    users, urls = (np.concatenate(part) for part in zip(*views.chunks(), strict=True))
    pairs = np.unique(users * np.int64(views.url_count) + urls) % views.url_count
    truth = np.bincount(pairs, minlength=views.url_count)
    params = hg.ReleaseParams(epsilon=1, delta="1e-6", max_contributions=32)
    keys = views.url_texts(urls)
    sketch = hg.release(users, keys, params, release_key=hg.ReleaseKey(b"the figure of the README, openly"))
    names = np.array([16, 22, 30, 45, 60, 90, 130, 180, 400])
    asked = [text.as_py() for text in views.url_texts(names)] + ["https://example.org/nobody"]
    true = [*truth[names].tolist(), 0]
    rows = sketch.estimate(asked).to_pylist()
    top = max(row["high"] for row in rows)
    out = [
        '<text x="10" y="20" font-weight="600">Visitors of ten pages, released at ε = 1</text>',
        '<text x="10" y="38" font-size="11">bar: estimate · whisker: 95 % interval · red: true count, not part of the'
        " release</text>",
    ]
    for number, (row, exact) in enumerate(zip(rows, true, strict=True)):
        y = 52 + 24 * number
        numbers = (row["estimate"] or 0.0, row["low"], row["high"], exact)
        at, low, high, real = (262 + 370 * v / top for v in numbers)
        out.append(
            f'<text x="250" y="{y + 12}" text-anchor="end">{escape(row["key"].removeprefix("https://"))}</text>'
        )
        out.append(
            f'<rect x="262" y="{y}" width="{at - 262:.1f}" height="16" fill="var(--accent)" opacity="0.5"/>'
        )
        out.append(
            f'<path d="M{low:.1f} {y + 8}H{high:.1f}M{low:.1f} {y + 4}v8M{high:.1f} {y + 4}v8" stroke="var(--ink)"'
            ' stroke-width="1.5"/>'
        )
        out.append(
            f'<line x1="{real:.1f}" x2="{real:.1f}" y1="{y - 2}" y2="{y + 18}" stroke="var(--bad)" stroke-width="2"/>'
        )
        told, *ends = rounded(row["estimate"], row["low"], row["high"])
        told = f"{told}  ({' to '.join(ends)})"
        out.append(f'<text x="{max(high, real) + 8:.1f}" y="{y + 12}">{escape(told)}</text>')
    return as_file("Estimates with intervals beside the truth", "".join(out), 802, 60 + 24 * len(rows))


FIGURES: dict[str, Callable[[], str]] = {
    "odds": odds,
    "contributions": contributions,
    "kept": kept,
    "delta": delta,
    "releases": releases,
    "flow": flow,
    "result": result,
}


def main(names: list[str]) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or FIGURES:
        path = FOLDER / f"{name}.svg"
        path.write_text(FIGURES[name](), encoding="utf-8")
        print(path.relative_to(FOLDER.parents[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
