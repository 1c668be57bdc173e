"""The page of a plan: what each setting would be worth, as a table and a picture."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from hushgram.pipelines.pages.svg import Axis, Chart, Line
from hushgram.pipelines.pages.templating import render
from hushgram.pipelines.planning import rows_of, worth_lines
from hushgram.planner import COUNTS, Population, Prediction

__all__ = ["make_plan_page", "make_plan_picture"]

_COLOURS = ("var(--accent)", "var(--second)", "var(--third)", "var(--bad)")


def make_plan_page(population: Population, found: Sequence[Prediction], best: Prediction, why: str) -> str:
    """The page as text."""
    users = "" if population.users is None else f" of {population.users:,} users"
    return render(
        "plan",
        about=f"{population.records:,} records{users} and {population.keys:,} different keys",
        why=why,
        worth=list(worth_lines(best, population)),
        chart=Markup(_chart(best, found).svg()),
        bounds=None if (chart := _bounds(best, found)) is None else Markup(chart.svg()),
        counts=COUNTS,
        sets=[total.keys for total in best.totals],
        rows=[{**row, "best": one is best} for row, one in zip(rows_of(found), found, strict=True)],
    )


def make_plan_picture(population: Population, found: Sequence[Prediction], best: Prediction, why: str) -> str:
    """The picture alone, as a file of its own."""
    return _chart(best, found).file()


def _bounds(best: Prediction, found: Sequence[Prediction]) -> Chart | None:
    """Mean relative error against C, where several were tried."""
    lines: list[Line] = []
    for kind in dict.fromkeys((one.params.encoding, one.params.noise) for one in found):
        points = sorted(
            (float(one.params.max_contributions), one.score)
            for one in found
            if (one.params.encoding, one.params.noise) == kind and one.params.epsilon == best.params.epsilon
        )
        lines.append(Line(", ".join(kind), points, _COLOURS[len(lines) % len(_COLOURS)], dots=True))
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
    """Relative error against the count, for the settings of the recommended ε and C."""
    chosen = [
        one
        for one in found
        if one.params.epsilon == best.params.epsilon
        and one.params.max_contributions == best.params.max_contributions
    ]
    lines = [
        Line(
            f"{one.params.encoding}, {one.params.noise}",
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
