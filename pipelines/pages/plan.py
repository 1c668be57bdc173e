"""The page of a plan: what each setting would be worth, as a table and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from hushgram.numbers import show
from hushgram.pipelines.pages.svg import Axis, Chart, Line
from hushgram.pipelines.pages.templating import render
from hushgram.planner import COUNTS, Population, Prediction

__all__ = ["make_plan_page", "rows_of"]

_COLOURS = ("var(--accent)", "var(--second)", "var(--third)", "var(--bad)")


def make_plan_page(population: Population, found: Sequence[Prediction], best: Prediction, why: str) -> str:
    """The page as text."""
    users = "" if population.users is None else f" of {population.users:,} users"
    return render(
        "plan.html",
        about=f"{population.records:,} records{users} and {population.keys:,} different keys",
        why=why,
        chart=Markup(_chart(best, found)),
        rows=[{**row, "best": one is best} for row, one in zip(rows_of(found), found, strict=True)],
    )


def rows_of(found: Sequence[Prediction]) -> list[dict[str, Any]]:
    """One row a setting, the same for table, CSV and page."""
    out = []
    for one in found:
        params = one.params
        row: dict[str, Any] = {
            "encoding": params.encoding,
            "noise": params.noise,
            "epsilon": show(params.epsilon),
            "max_contributions": params.max_contributions,
            "bytes": one.size,
            "kept": round(one.kept, 3),
        }
        row |= {f"error_at_{a.count}": round(a.error, 1) for a in one.at}
        row |= {f"width_at_{a.count}": round(a.width, 1) for a in one.at}
        row |= {f"total_error_{t.keys}": round(t.error, 4) for t in one.totals}
        row |= {
            "resolved_from": one.resolved,
            "keys_resolved": one.resolved_keys,
            "heavy_from": one.threshold,
            "false_heavy": round(one.false_keys),
            "missed_heavy": round(one.missed_keys),
            "score": round(one.score, 3),
        }
        out.append(row)
    return out


def _chart(best: Prediction, found: Sequence[Prediction]) -> str:
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
        Axis("error / count", low / 2, max(top, 1.0) * 3, log=True),
        [],
        lines,
    ).svg()
