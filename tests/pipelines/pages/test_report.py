"""The report in a real browser: rendered, silent, readable, and without a word to the network."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import hushgram as hg
from hushgram.accounting import Budget, Event
from hushgram.contributions.bounding import Contributions
from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import hash_bytes
from hushgram.errors import OutputError
from hushgram.ledger import Ledger, Request
from hushgram.pipelines.commands.report import command
from hushgram.pipelines.pages.static import _distribution, make_report
from hushgram.pipelines.pages.tables import ranked_keys
from hushgram.processes import Owner
from tests.pipelines.page_checks import violations

KEY = hg.ReleaseKey(bytes(range(32)))


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
    assert looked.page.locator("svg.chart:visible").count() == 2
    assert all(looked.page.locator(f"#{part}").count() == 1 for part in ("others", "distribution", "kept"))
    looked.keep(f"report-{name}")
    assert looked.errors == []
    assert all(url.startswith(("file://", "data:")) for url in looked.requests)


def test_keys_are_text_and_can_be_found_and_sorted_with_the_keyboard(
    sketches: dict[str, Path], looked: Any, tmp_path: Path
) -> None:
    make(sketches["text"], tmp_path / "report.html")
    page = looked.page
    page.goto(f"file://{tmp_path}/report.html")
    assert "<script>alert" in page.inner_text("#keys tbody tr:first-child td.key")  # shown, not run
    page.focus("#keys input")
    page.keyboard.type("/page/2")
    shown = page.locator("#keys tbody tr:visible")
    assert shown.count() >= 1
    assert all("/page/2" in text for text in shown.locator("td.key").all_inner_texts())
    assert "rows" in page.inner_text("#keys [role=status]")
    page.focus("#keys th[data-field=value] button")
    for order, rising in (("descending", -1), ("ascending", 1)):
        page.keyboard.press("Enter")
        assert page.get_attribute("#keys th[data-field=value]", "aria-sort") == order
        cells = page.locator("#keys tbody tr:visible td[data-v]:nth-child(2)")
        values = [float(v) for v in cells.evaluate_all("cells => cells.map(c => c.dataset.v)") if v]
        assert values == sorted(values, key=lambda v: rising * v)


def test_the_downloaded_csv_has_what_is_shown(
    sketches: dict[str, Path], browser: Any, tmp_path: Path
) -> None:
    make(sketches["text"], tmp_path / "report.html")
    page = browser.new_page()
    page.goto(f"file://{tmp_path}/report.html")
    with page.expect_download() as download:
        page.click("#keys .tools button")
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    found = (
        hg.Sketch.open(sketches["text"])
        .heavy()
        .sort_by([("value", "descending"), ("fingerprint", "ascending")])
    )
    assert [row["key"] for row in rows] == found["key"].to_pylist()
    assert float(rows[0]["value"]) == found["value"][0].as_py()
    assert [float(row["low"]) for row in rows] == pytest.approx(found["low"].to_pylist())
    page.fill("#keys input", "<script>")
    with page.expect_download() as download:
        page.click("#keys .tools button")
    assert len(Path(download.value.path()).read_text().splitlines()) == 2
    page.close()


def test_without_javascript(browser: Any, sketches: dict[str, Path], tmp_path: Path) -> None:
    make(sketches["text"], tmp_path / "report.html")
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto(f"file://{tmp_path}/report.html")
    assert page.locator("#keys tbody tr:visible").count() > 5
    assert not page.locator("#keys input, #keys button").first.is_visible()
    context.close()


LONG = "https://example.org/a/long/path/that/does/not/fit/into/a/cell/of/a/table/at/all/index.html?page="


@pytest.fixture(scope="module")
def composite(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Keys of two columns, some long, some formulas; a pure and a text release; a file of their names."""
    home = tmp_path_factory.mktemp("composite")
    rng = np.random.default_rng(1)
    pages = np.minimum(rng.zipf(1.5, 20_000), 400)
    parts = [
        ("FR" if page % 2 else "=CH", f"{LONG}{page}" if page % 3 == 1 else f"/{page}") for page in pages
    ]
    keys = [json.dumps(part, separators=(",", ":")) for part in parts]
    users = [f"u{i}" for i in range(len(keys))]
    for name, delta in (("pure", "0"), ("text", "1e-6")):
        params = hg.ReleaseParams(epsilon="2", delta=delta, max_contributions=2)
        hg.release(users, keys, params, home / name, release_key=KEY)
    names = [f"{key}\tTitle {i}" if i % 2 == 0 else key for i, key in enumerate(dict.fromkeys(keys))]
    (home / "names.txt").write_text("\n".join(names[:60]) + "\n")
    return {"pure": home / "pure", "text": home / "text", "names": home / "names.txt"}


@pytest.mark.parametrize("name", ["text", pytest.param("pure", marks=pytest.mark.long)])
def test_names_titles_columns_and_long_keys(
    name: str, composite: dict[str, Path], browser: Any, tmp_path: Path
) -> None:
    make(composite[name], tmp_path / "report.html", "--keys-file", str(composite["names"]))
    assert violations(browser, f"file://{tmp_path}/report.html") == []
    page = browser.new_page()
    page.goto(f"file://{tmp_path}/report.html")
    heads = [text.strip() for text in page.locator("#keys thead th").all_inner_texts()]
    assert heads[:4] == ["column 1", "column 2", "title", "estimate"]
    first = page.locator("#keys tbody tr").first
    assert first.locator("td").nth(0).inner_text() == "FR"
    assert re.fullmatch(r"Title \d+", first.locator("td.title").inner_text())
    long = first.locator(".long")
    assert long.text_content() == f"{LONG}1"
    assert long.bounding_box()["height"] < 40
    long.focus()
    assert long.bounding_box()["height"] > 40  # on several lines, all of it
    assert "< " in page.inner_text("#asked tbody")
    with page.expect_download() as download:
        page.click("#keys .tools button")
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert rows[0]["column_2"] == f"{LONG}1"
    assert {row["column_1"] for row in rows if not re.fullmatch("[0-9a-f]{16}", row["column_1"])} == {
        "FR",
        "'=CH",
    }
    page.close()


def test_fingerprints_without_names_are_shown(composite: dict[str, Path], tmp_path: Path) -> None:
    text = make(composite["pure"], tmp_path / "report.html")
    assert "name them with --keys-file" in text
    assert re.search(r"<code>[0-9a-f]{16}</code>", text)


def test_ranks_and_shares_are_no_finer_than_the_noise() -> None:
    pages = np.minimum(np.random.default_rng(1).zipf(1.5, 20_000), 400)
    sketch = hg.release(None, pages, hg.ReleaseParams(epsilon="1", max_contributions=1), release_key=KEY)
    table, listed, whole = ranked_keys(sketch, None)
    assert whole is not None
    assert whole.text == "the total"
    low, high = listed["low"].to_numpy(), listed["high"].to_numpy()
    for i, row in enumerate(table.rows):
        least, _, most = str(row[0].html).removesuffix(" or lower").partition("–")
        assert int(least) == 1 + (low > high[i]).sum()
        assert "lower" in row[0].html or int(most or least) == (high >= low[i]).sum()
        value = listed["value"][i].as_py()
        assert "<" not in row[2].html  # a listed key has a count
        assert (row[5].html == "–") == (high[i] - max(low[i], 0) > value)


def test_what_the_cut_took(sketches: dict[str, Path], tmp_path: Path) -> None:
    assert "t most 3 of a user; " in make(sketches["pure"], tmp_path / "stated.html")
    users = np.repeat(np.arange(3_000), 1 + np.arange(3_000) % 40)
    keys = np.arange(len(users)) % 500
    params = hg.ReleaseParams(epsilon="2", max_contributions="auto")
    hg.release(users, keys, params, tmp_path / "chosen.sketch")
    text = make(tmp_path / "chosen.sketch", tmp_path / "chosen.html")
    assert "chosen from the data; how much a single key lost is not known" in text
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
    assert "Intervals hold for all" in text
    found = hg.Sketch.open(sketches["text"]).heavy().sort_by([("value", "descending")])
    alone = hg.Sketch.open(sketches["text"]).estimate(found["key"].to_pylist())
    widest = found["high"].to_numpy()[0]
    assert widest > alone["high"].to_numpy()[0]
    assert f'data-v="{widest:.10g}" data-l="to">{widest:,.0f}</td>' in text


NOISY = [f"u{i % 300}" for i in range(3_000)]
PAGES = [f"/{i % 7}" for i in range(3_000)]


def report_text(sketch: hg.Sketch) -> str:
    """The words of a report, without markup and charts."""
    return report_words(make_report(sketch))


def report_words(page: str) -> str:
    page = re.sub(r"<(script|style|svg).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_a_report_of_public_keys_has_the_errors_of_its_noise() -> None:
    params = hg.ReleaseParams(epsilon="1", max_contributions=4)
    sketch = hg.release_public(NOISY, PAGES, ["/1", "/2", "/99"], params, release_key=KEY)
    text = report_text(sketch)
    law = sketch.plan.noise.law(float(sketch.plan.scale))
    error, width = law.variance**0.5, 2 * law.interval(0.95)
    assert f" 1 – &lt; {1 + width:,.0f} " in text
    assert f" 10,000 ± {error / 100:.2g} % ± {width / 200:.2g} % " in text
    for word in ("0 records", "bits per key", "alpha", "synthetic"):
        assert word not in text


def test_sums_are_called_sums_and_have_one_unit() -> None:
    params = hg.ReleaseParams(epsilon="8", max_contributions="40", max_value="10", granularity="0.25")
    sketch = hg.release(NOISY, PAGES, params, values=[2.5] * len(PAGES), release_key=KEY)
    text = report_text(sketch)
    assert "detection limit (sum of a single key)" in text
    assert "max contributions 40 max per key 10" in text
    assert "At most 40 of a user; there are too few users" in text
    for word in ("count of a", "true count", "at most 160", "Counts are"):
        assert word not in text


#: With them noise hides the sizes.
HIDDEN = hg.ReleaseParams(epsilon="1", max_contributions=20)


def test_no_number_is_shown_below_its_noise_and_each_has_one_interval() -> None:
    sketch = hg.release(NOISY, PAGES, HIDDEN, release_key=hg.ReleaseKey(bytes(32)))
    records, keys = sketch.released_sizes()
    text = report_text(sketch)
    assert keys.startswith("fewer than ")
    assert f"{records} records after bounding" in text
    assert f"{keys} different keys" in text
    assert keys in sketch.sizes_in_words()
    assert re.search(r"\((no key|at most \d+ keys?) can reach it\)", sketch.detection_limit().sentence())
    assert re.search(r"other keys fewer than [\d,]+ ", text)
    assert not re.search(r"\b0 ±", text)


def test_no_line_is_drawn_below_the_detection_limit() -> None:
    sketch = hg.release(NOISY, PAGES, HIDDEN, release_key=hg.ReleaseKey(bytes(32)))
    page = make_report(sketch)
    chart = page[page.index('aria-label="Expected error as a share') :].partition("</svg>")[0]
    left, wide = map(float, re.search(r'<rect x="([\d.]+)" y="14" width="([\d.]+)"', chart).groups())
    assert "below the detection limit" in chart
    lines = re.findall(r'<polyline points="([\d.]+),', chart)
    assert [float(start) for start in lines] == pytest.approx([left + wide] * 2, abs=0.11)


# --- every figure against the truth -----------------------------------------------------------------------------------


class Truth:
    """A release of simulated records, its page, and the counts before (`all`) and after bounding (`kept`)."""

    def __init__(self, users: Any, keys: Any, params: hg.ReleaseParams) -> None:
        parts: list[Histogram] = []
        bounded, apart = Contributions.bounded, Contributions.bounded_apart

        def seen(rows: Contributions, *bounds: Any) -> Histogram:
            parts.append(bounded(rows, *bounds))
            return parts[-1]

        def both_seen(rows: Contributions, *bounds: Any) -> tuple[Histogram, Histogram]:
            parts.extend(found := apart(rows, *bounds))
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Contributions, "bounded", seen)
            patch.setattr(Contributions, "bounded_apart", both_seen)
            self.sketch = hg.release(users, keys, params, release_key=KEY)
        self.all = Counter(keys)
        self.kept = self.all
        if users is not None:
            prints = hash_bytes(pa.array(sorted(self.all), pa.large_binary()))
            names = dict(zip(prints.tolist(), sorted(self.all), strict=True))
            self.kept = Counter()
            for part in parts:
                for print_, count in zip(part.fingerprints, part.counts, strict=True):
                    self.kept[names[int(print_)]] += int(count)
        self.named = [str(key) for key in self.sketch.heavy(keys=sorted(self.all))["key"].to_pylist()]
        self.page = make_report(self.sketch, titles=dict.fromkeys(sorted(self.all), ""))
        self.text = report_words(self.page)

    def in_cell(self, key: str) -> int:
        """The counts of all keys that are listed where this one is: at δ = 0 two keys may share a cell."""
        keys = sorted(self.all)
        cells = self.sketch._codes(hash_bytes(pa.array(keys, pa.large_binary())))[-1]
        same = np.flatnonzero(cells == cells[keys.index(key)])
        return sum(self.kept[keys[at]] for at in same)

    @property
    def others(self) -> list[int]:
        """The counts of keys that are not named."""
        return [count for key, count in self.kept.items() if key not in set(self.named)]

    def rows(self, table: str) -> list[dict[str, tuple[str, str]]]:
        """The rows of a table: text and value of each cell, by the field of its column."""
        part = self.page[self.page.index(f'<div class="data" id="{table}"') :].partition("</table>")[0]
        heads = re.findall(r'<th class="[^"]*"(?: data-field="([^"]*)")?>', part)
        rows = re.findall(r"<tr>(<td.*?)</tr>", part, re.DOTALL)
        cells = r'<td class="[^"]*"(?: data-v="([^"]*)")?(?: data-l="[^"]*")?>(.*?)</td>'
        return [
            {head: (text, value) for head, (value, text) in zip(heads, re.findall(cells, row), strict=True)}
            for row in rows
        ]


def number(text: str) -> float:
    return float(text.replace(",", ""))


def inside(words: str, true: float) -> bool:
    """Whether a number in words, such as 51 ± 7, 4 to 9, fewer than 30 or at most 30, allows the true one."""
    found = [number(each) for each in re.findall(r"[\d,]*\d(?:\.\d+)?", words)]
    if "±" in words:
        return abs(found[0] - true) <= found[1]
    if "to" in words:
        return found[-2] <= true <= found[-1]
    return true <= found[0] if "at most" in words else true < found[0]


@pytest.fixture(scope="module", params=["records", "fingerprints", "named"])
def truth(request: pytest.FixtureRequest) -> Truth:
    """Bounding cuts users deeply, except where each record is protected by itself."""
    rng = np.random.default_rng(8)
    users = np.repeat(np.arange(10_000), np.minimum(rng.pareto(1.1, 10_000) * 4 + 1, 80).astype(int))
    keys = [f"/{page}" for page in np.minimum(rng.zipf(1.3, len(users)), 3_000)]
    params = {"epsilon": "4", "delta": "0" if request.param == "fingerprints" else "1e-6"}
    made = hg.ReleaseParams(**params, max_contributions=1 if request.param == "records" else 4)
    return Truth(None if request.param == "records" else users, keys, made)


def test_tiles_state_the_true_sizes(truth: Truth) -> None:
    """The sum of records once left out the named keys, one of which could have more than the sum."""
    tiles = dict(
        re.findall(r'<div class="tile"><b>(.*?)</b>(.*?)</div>', truth.page)[i][::-1] for i in range(4)
    )
    assert inside(tiles["records after bounding"], sum(truth.kept.values()))
    apart = not truth.sketch.plan.selection.by_count
    beside = "different keys beside the named ones" if apart else "different keys"
    assert inside(tiles[beside], len(truth.others) if apart else len(truth.kept))
    assert ("beside the named ones" in truth.sketch.sizes_in_words()) is apart


def test_no_more_keys_reach_the_detection_limit_than_can(truth: Truth) -> None:
    limit = truth.sketch.detection_limit()
    reach = sum(count >= limit.count for count in truth.kept.values())
    words = re.search(r"\((?:about )?([^()]*) keys? (?:can )?reach", truth.text)
    assert words is not None
    assert inside(words[1], reach)
    assert number(re.findall(r"[\d,]+", words[1])[0]) <= sum(truth.kept.values()) / limit.count * 1.2


def test_rows_hold_the_true_counts_and_show_neither_ranks_nor_shares_that_are_not_known(truth: Truth) -> None:
    rows, whole = truth.rows("keys"), sum(truth.all.values())
    assert len(rows) >= 5
    for row in rows:
        interval, key = f"{row['low'][0]} to {row['high'][0]}", row["key"][0]
        assert inside(interval, truth.kept[key]) or (
            not truth.sketch.plan.selection.texts and inside(interval, truth.in_cell(key))
        )
    if truth.sketch.plan.unit == "user":  # what bounding dropped is not known
        assert {"rank", "share", "cumulative_share"}.isdisjoint(rows[0])
        assert "share of the total" not in truth.text
        return
    counts, above = np.array(sorted(truth.all.values())), 0
    for row in rows:
        true = truth.all[row["key"][0]]
        first, last = re.fullmatch(r"(\d+)(?:–(\d+)|( or lower))?", row["rank"][0]).group(1, 2)  # type: ignore[union-attr]
        assert int(first) <= 1 + (counts > true).sum()
        assert "lower" in row["rank"][0] or (counts >= true).sum() <= int(last or first)
        above += true
        for name, share in (("share", true / whole), ("cumulative_share", above / whole)):
            if row[name][1]:  # resolved: its interval is at most as wide as it
                assert abs(float(row[name][1]) - share) <= 0.5 * float(row[name][1])


def test_other_keys_are_as_stated(truth: Truth) -> None:
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", truth.page))
    together = facts["count of all other keys together"].partition(", with")[0]
    assert inside(together.strip("()"), sum(truth.others))
    assert inside(facts["other keys"], len(truth.others))
    if mean := facts.get("mean count of one of them"):
        assert inside(mean.strip("()"), sum(truth.others) / len(truth.others))


def test_the_distribution_is_drawn_where_it_is_known(truth: Truth) -> None:
    found = _distribution(truth.sketch)
    assert found is not None
    counts = np.array(sorted(truth.kept.values()))
    for least, about, interval in found["rows"]:
        assert about != "unresolved"
        assert inside(interval, (counts >= number(least)).sum())
    assert "<rect" not in found["chart"]
    assert "not resolved" not in found["chart"]


@pytest.mark.parametrize(("delta", "seed"), [("0", 3), ("1e-6", 26)])
def test_a_number_of_keys_on_which_intervals_do_not_agree_is_left_out(delta: str, seed: int) -> None:
    """Where two of them did not meet, the page had the end of one, as if it were known: 208 to 208 keys of 112."""
    rng, key = np.random.default_rng(8), hg.ReleaseKey(bytes([seed]) * 32)
    pages = np.minimum(rng.zipf(1.3, (2, 20_000)), 3_000)[int(delta == "0")]
    params = hg.ReleaseParams(epsilon="2", delta=delta, max_contributions=1)
    found = _distribution(hg.release(np.arange(20_000), pages, params, release_key=key))
    assert found is not None
    counts = np.array(list(Counter(pages.tolist()).values()))
    assert len(found["rows"]) >= 3
    for least, _, interval in found["rows"]:
        assert inside(interval, (counts >= number(least)).sum())


def test_nothing_is_said_of_which_keys_lost_how_much(truth: Truth) -> None:
    assert "popular keys" not in truth.text


def test_a_distribution_that_noise_hides_is_left_out() -> None:
    """It was one grey block, and a band from 0 to more keys than there are records."""
    sketch = hg.release(NOISY, PAGES, HIDDEN, release_key=hg.ReleaseKey(bytes(32)))
    assert _distribution(sketch) is None
    assert "Distribution" not in report_text(sketch)
