"""The report of several sketches: series with bands, changes at a false discovery rate, in a real browser."""

from __future__ import annotations

import csv
import datetime
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import hushgram as hg
from hushgram.errors import ParameterError
from hushgram.pipelines.commands.report import command
from hushgram.pipelines.pages.over_time import _line_over_dates, _marks, make_report_over_time
from hushgram.sketch.over_time import Series, compare, series
from tests.pipelines.page_checks import violations

DAYS = (1, 2, 4)  # none for the third
GROWS = "https://example.org/a/page/with/a/long/address/that/grows/every/day.html"


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("days")
    for day in DAYS:
        rng = np.random.default_rng(day)
        counts = rng.poisson(9_000 / np.arange(1, 61))
        keys = [f"/page/{i}" for i, n in enumerate(counts) for _ in range(n)] + [GROWS] * (1_500 * day)
        params = hg.ReleaseParams(epsilon="2", delta="1e-6", max_contributions=1)
        name, key = f"urls-2026-11-0{day}", hg.ReleaseKey(bytes([day] * 32))
        hg.release(np.arange(len(keys)), keys, params, home / f"{name}.sketch", name=name, release_key=key)
    return home


@pytest.fixture(scope="module")
def page(days: Path) -> Path:
    asked = [f"{days}/urls-{{date}}.sketch", "-o", f"{days}/page.html"]
    result = CliRunner().invoke(command, asked, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return days / "page.html"


def opened(days: Path) -> list[hg.Sketch]:
    return [hg.Sketch.open(path) for path in sorted(days.glob("*.sketch"))]


def test_nothing_is_cut_off_faint_or_out_of_reach(page: Path, browser: Any) -> None:
    assert violations(browser, f"file://{page}") == []


def test_what_the_page_says_and_gives(page: Path, days: Path, browser: Any) -> None:
    shown = browser.new_page()
    shown.goto(f"file://{page}")
    assert shown.title() == "urls-2026-11-01 to urls-2026-11-04 · hushgram report"
    text = shown.inner_text("main")
    assert "There is no sketch for 2026-11-03." in text
    assert "at a false discovery rate of 5 %" in text
    assert "(6, 0.000003)-differentially private" in text
    assert shown.locator(".charts svg").count() == 8
    tables = {}
    for name in ("by-date", "changes"):
        with shown.expect_download() as download:
            shown.click(f"#{name} .tools button")
        tables[name] = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    shown.close()
    sketches = opened(days)
    found = compare(sketches[0], sketches[-1])
    assert [row["key"] for row in tables["changes"]] == found.table["key"].to_pylist()
    for name in ("difference", "low", "ratio_high"):
        assert [float(row[name]) for row in tables["changes"]] == pytest.approx(found.table[name].to_pylist())
    first = tables["changes"][0]
    assert (first["key"], first["change"]) == (GROWS, "rose")
    table = series(sketches, [GROWS], 1.0 - 0.05 / len(found.table)).table
    expected = [row for row in table.to_pylist() if row["of"] == "key"]
    told = [row for row in tables["by-date"] if row["key"] == GROWS]
    assert [row["date"] for row in told] == [str(row["date"]) for row in expected]
    assert [float(row["low"]) for row in told] == pytest.approx([row["low"] for row in expected])


def test_an_unchanged_key_has_an_interval_and_no_number(days: Path) -> None:
    text = make_report_over_time(opened(days), titles={"/nowhere": "None", GROWS: "Grows"}, rate=0.01)
    assert "1 of 2 compared keys changed, at a false discovery rate of 1 %" in text
    row = text[text.index('id="changes"') :]
    row = row[row.index("/nowhere") :].partition("</tr>")[0]
    assert "not found" in row
    assert row.count("&lt; ") == 2
    assert ">Grows<" in text


def test_lines_end_where_they_are_not_resolved() -> None:
    dates = [datetime.date(2026, 11, day) for day in range(1, 6)]
    found = Series(pa.table({"date": dates}), (), {})
    points = [
        (date, 100.0, 95.0 if i < 3 else 0.0, 105.0 if i < 3 else 300.0) for i, date in enumerate(dates)
    ]
    chart = str(_line_over_dates("a<b", points, [], found))
    assert chart.count("<polyline") == 1
    assert chart.count(",", chart.index("<polyline"), chart.index("/>", chart.index("<polyline"))) == 3
    assert "<figcaption" in chart
    assert "a&lt;b" in chart
    assert [text for _, text in _marks(dates[0], dates[-1])] == ["11-01", "11-02", "11-03", "11-04", "11-05"]


def test_dates_far_apart_make_a_short_page() -> None:
    """A mistyped year once made a page of 70 MB: there was a shade for each day without a sketch."""
    dates = [datetime.date.min, *(datetime.date(2026, 11, day) for day in (17, 18)), datetime.date.max]
    points = [(date, 100.0, 95.0, 105.0) for date in dates]
    chart = str(_line_over_dates("key", points, [], Series(pa.table({"date": dates}), (), {})))
    assert chart.count("<rect") == 2
    assert len(chart) < 5_000


def test_two_sketches_need_no_dates_and_three_do(sketches: dict[str, Path]) -> None:
    text, pure = (hg.Sketch.open(sketches[name]) for name in ("text", "pure"))
    assert "Parameters differ" in make_report_over_time([text, pure], titles={"/page/2": ""})
    with pytest.raises(ParameterError, match="no date in the name"):
        make_report_over_time([text, pure, text], titles={"/page/2": ""})
    with pytest.raises(ParameterError, match="--keys-file"):
        make_report_over_time([text, pure])
