"""The report in a real browser: rendered, silent, readable, and without a word to the network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hushgram as hg
from hushgram.accounting import Budget, Event
from hushgram.errors import OutputError
from hushgram.ledger import Ledger, Request
from hushgram.pipelines.commands.report import command
from hushgram.pipelines.pages.static import make_report
from hushgram.processes import Owner


def make(sketch: Path, output: Path, *more: str) -> str:
    result = CliRunner().invoke(command, [str(sketch), "-o", str(output), *more], catch_exceptions=True)
    if result.exception is not None:
        raise result.exception
    return output.read_text()


@pytest.mark.parametrize("name", ["pure", "text"])
def test_the_page_in_a_browser(name: str, sketches: dict[str, Path], looked: Any, tmp_path: Path) -> None:
    make(sketches[name], tmp_path / "report.html")
    looked.page.goto(f"file://{tmp_path}/report.html")
    assert looked.page.title() == f"urls-{name} · hushgram report"
    assert "differentially private for one user" in looked.page.inner_text("#guarantee")
    assert looked.page.locator("svg.chart").count() == 2
    assert looked.contrast() == []
    looked.keep(f"report-{name}")
    assert looked.errors == []
    assert all(url.startswith(("file://", "data:")) for url in looked.requests)


def test_keys_are_text_and_can_be_found_with_the_keyboard(
    sketches: dict[str, Path], looked: Any, tmp_path: Path
) -> None:
    make(sketches["text"], tmp_path / "report.html")
    page = looked.page
    page.goto(f"file://{tmp_path}/report.html")
    assert "<script>alert" in page.inner_text("#keys tbody tr:first-child td")  # shown, not run
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "find"
    page.keyboard.type("/page/2")
    shown = page.locator("#keys tbody tr:visible")
    assert shown.count() >= 1
    assert all("/page/2" in text for text in shown.locator("td.key").all_inner_texts())
    assert "keys" in page.inner_text("#found")


def test_without_javascript_and_on_a_phone(browser: Any, sketches: dict[str, Path], tmp_path: Path) -> None:
    make(sketches["text"], tmp_path / "report.html")
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto(f"file://{tmp_path}/report.html")
    assert page.locator("#keys tbody tr:visible").count() > 5
    assert not page.locator("#find").is_visible()
    width = page.locator("body").bounding_box()["width"]
    assert width <= 390  # nothing sticks out
    context.close()


def test_what_the_cut_took(sketches: dict[str, Path], tmp_path: Path) -> None:
    assert "This release does not say how much it was" in make(sketches["pure"], tmp_path / "stated.html")
    users = np.repeat(np.arange(3_000), 1 + np.arange(3_000) % 40)
    keys = np.arange(len(users)) % 500
    params = hg.ReleaseParams(epsilon="2", max_contributions="auto")
    hg.release(users, keys, params, tmp_path / "chosen.sketch")
    assert "of what users add was dropped" in make(tmp_path / "chosen.sketch", tmp_path / "chosen.html")
    hg.release(None, keys, hg.ReleaseParams(epsilon="2", max_contributions=1), tmp_path / "rows.sketch")
    assert "every record counts" in make(tmp_path / "rows.sketch", tmp_path / "rows.html")


def test_the_budget_over_time(sketches: dict[str, Path], looked: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with Ledger.create(url) as ledger:
        ledger.add_dataset("views", Budget("3"))
        for day in (1, 2):
            ledger.reserve(Request("views", f"day-{day}", [Event("laplace", "1")]), Owner.this())
    make(sketches["pure"], tmp_path / "report.html", "--ledger", url)
    looked.page.goto(f"file://{tmp_path}/report.html")
    assert "2 of 3 spent" in looked.page.inner_text("main")
    assert looked.page.locator("h2#budget ~ div tbody tr").first.is_visible()
    assert looked.contrast() == []
    looked.keep("report-budget")


def test_a_page_is_not_replaced_unless_asked(sketches: dict[str, Path], tmp_path: Path) -> None:
    make(sketches["pure"], tmp_path / "report.html")
    with pytest.raises(OutputError, match="--force"):
        make(sketches["pure"], tmp_path / "report.html")
    make(sketches["pure"], tmp_path / "report.html", "--force")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_intervals_hold_for_all_listed_keys_at_once(sketches: dict[str, Path], tmp_path: Path) -> None:
    text = make(sketches["text"], tmp_path / "report.html")
    assert "intervals that hold for all heavy keys at once with probability 95%" in text
    found = hg.Sketch.open(sketches["text"]).heavy().sort_by([("value", "descending")])
    alone = hg.Sketch.open(sketches["text"]).estimate(found["key"].to_pylist())
    widest = found["high"].to_numpy()[0]
    assert widest > alone["high"].to_numpy()[0]
    assert f'<td class="n">{widest:,.0f}</td>' in text


NOISY = [f"u{i % 300}" for i in range(3_000)]
PAGES = [f"/{i % 7}" for i in range(3_000)]
KEY = hg.ReleaseKey(bytes(range(32)))


def report_text(sketch: hg.Sketch) -> str:
    """The words of a report, without markup and charts."""
    page = re.sub(r"<(script|style|svg).*?</\1>", " ", make_report(sketch), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_a_report_of_public_keys_has_the_errors_of_its_noise() -> None:
    params = hg.ReleaseParams(epsilon="1", max_contributions=4)
    sketch = hg.release_public(NOISY, PAGES, ["/1", "/2", "/99"], params, release_key=KEY)
    text = report_text(sketch)
    law = sketch.plan.noise.law(float(sketch.plan.scale))
    for count in (1, 10_000):
        assert f" {count:,} ± {law.variance**0.5:,.1f} {2 * law.interval(0.95):,.0f} " in text
    for word in ("0 records", "bits per key", "alpha", "synthetic"):
        assert word not in text


def test_sums_are_called_sums_and_have_one_unit() -> None:
    params = hg.ReleaseParams(epsilon="8", max_contributions="40", max_value="10", granularity="0.25")
    sketch = hg.release(NOISY, PAGES, params, values=[2.5] * len(PAGES), release_key=KEY)
    text = report_text(sketch)
    assert "detection limit (sum of a single key)" in text
    assert "max contributions 40 max per key 10" in text
    assert "One user contributes at most 40, 10 of them for one key" in text
    for word in ("count of a", "true count", "at most 160", "Counts are"):
        assert word not in text


def test_no_number_is_shown_below_its_noise_and_each_has_one_interval() -> None:
    sketch = hg.release(NOISY, PAGES, hg.ReleaseParams(epsilon="1", max_contributions=7), release_key=KEY)
    records, keys = sketch.released_sizes()
    text = report_text(sketch)
    assert keys.startswith("fewer than ")
    assert f"{records} records after bounding" in text
    assert f"{keys} different keys" in text
    assert keys in sketch.sizes_in_words()
    assert "(fewer than" in sketch.detection_limit().sentence()
    assert re.search(r"95%\), fewer than [\d,]+ keys", text)
    assert not re.search(r"\b0 ±", text)


def test_the_line_of_the_count_itself_is_straight() -> None:
    """Both axes are logarithmic: the line rises one decade for each decade, and ends where the chart does."""
    sketch = hg.release(NOISY, PAGES, hg.ReleaseParams(epsilon="1", max_contributions=7), release_key=KEY)
    page = make_report(sketch)
    chart = page[page.index("Expected error at a true count") :]
    x1, y1, x2, y2 = map(
        float, re.search(r'points="([\d.]+),([\d.]+) ([\d.]+),([\d.]+)"[^>]*dasharray', chart).groups()
    )
    ticks = {int(n): float(at) for at, n in re.findall(r'<text x="([\d.]+)" y="273[^>]*>(\d+)<', chart)}
    rows = {int(n): float(at) for at, n in re.findall(r'y="([\d.]+)" text-anchor="end">(\d+)<', chart)}
    across, up = ticks[100] - ticks[10], rows[10] - rows[100]
    assert (y1 - y2) / up == pytest.approx((x2 - x1) / across, rel=0.01)
