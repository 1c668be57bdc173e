"""The explore page: asked by a person in a browser, and by others who should not."""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import pyarrow as pa
import pytest

import hushgram as hg
from hushgram.errors import HushgramError
from hushgram.pipelines.pages.explore import LARGEST_FILE
from hushgram.pipelines.pages.explore_questions import KeyFile, Question, group_of
from hushgram.pipelines.pages.explore_views import Explorer
from hushgram.pipelines.terminal import rounded
from hushgram.sketch.over_time import compare, series
from hushgram.sketch.reader import Sketch
from tests.pipelines.page_checks import violations

LAUNCH = "https://example.org/news/launch"


@pytest.fixture(scope="module")
def dated(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three sketches of three dates, with one date between them missing; one page rises from date to date."""
    home, rng, out = tmp_path_factory.mktemp("dated"), np.random.default_rng(5), []
    for day in (1, 2, 4):
        pages = np.minimum(rng.zipf(1.4, 12_000), 2000)
        urls = [f"https://example.org/{('news', 'sport', 'shop')[page % 3]}/{page}" for page in pages]
        urls[:: 40 - 8 * day] = [LAUNCH] * len(urls[:: 40 - 8 * day])
        params = hg.ReleaseParams(epsilon="4", delta="1e-6", max_contributions=1)
        out.append(home / f"urls-2026-11-0{day}.sketch")
        key = hg.ReleaseKey(bytes([day]) * 32)
        hg.release(np.arange(12_000), urls, params, out[-1], name=out[-1].stem, release_key=key)
    return out


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[str]:
    """The address of a page, which says nothing on standard error but its note."""
    command = [sys.executable, "-m", "hushgram.pipelines", "explore", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        told = process.communicate(timeout=60)[1]
    assert "Traceback" not in told, told


@pytest.fixture(scope="module")
def address(sketches: dict[str, Path]) -> Iterator[str]:
    with served(*map(str, sketches.values())) as found:
        yield found


@pytest.fixture(scope="module")
def over_time(dated: list[Path]) -> Iterator[str]:
    with served(*map(str, dated)) as found:
        yield found


def ask(url: str, content: bytes | None = None, **headers: str) -> tuple[int, str]:
    kind = {} if content is None else {"Content-Type": "application/octet-stream"}
    sent = {**kind, **{k.replace("_", "-"): v for k, v in headers.items()}}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, content, sent), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read().decode()


def rows_of(url: str) -> list[dict[str, str]]:
    status, text = ask(url)
    assert status == 200, text
    return list(csv.DictReader(io.StringIO(text)))


def load(address: str, content: bytes, name: str = "pages.txt") -> str:
    status, text = ask(f"{address}keys?{urlencode({'name': name})}", content)
    assert status == 200, text
    return str(json.loads(text)["file"])


# --- answers --------------------------------------------------------------------------------------------------------


def test_it_opens_on_the_largest_keys_and_totals(sketches: dict[str, Path]) -> None:
    explorer = Explorer([("text", Sketch.open(sketches["text"]))])
    answer = explorer.answer(Question())
    listed = (
        Sketch.open(sketches["text"]).heavy().sort_by([("value", "descending"), ("fingerprint", "ascending")])
    )
    assert [row[0].text for row in answer.rows] == listed["key"].to_pylist()[:50]
    assert answer.data["low"].to_pylist()[:3] == listed["low"].to_pylist()[:3]
    assert answer.number == listed.num_rows
    assert "records after bounding" in answer.tiles[0][1]
    assert answer.foot[0][0].text == "all other keys"
    values = answer.data["estimate"].to_numpy(zero_copy_only=False)
    assert (np.diff(values[~np.isnan(values)]) <= 0).all()


def test_fingerprints_get_names_from_a_key_file(sketches: dict[str, Path]) -> None:
    many = KeyFile.read("pages.txt", "\n".join(f"/page/{i}" for i in range(30_000)).encode())
    explorer = Explorer([("pure", Sketch.open(sketches["pure"]))])
    assert explorer.answer(Question()).data["key"].null_count == 50
    assert explorer.suggest("page") == []
    explorer.add(many)  # too long to be looked up, but it names what is listed
    assert explorer.answer(Question(file=many.id)).data["key"].to_pylist()[1] == "/page/2"
    assert "/page/2" in explorer.suggest("PAGE/2", many.id)
    titled = KeyFile.read("titles.txt", b"/page/2\tThe second page\r\n/page/3\n")
    explorer.add(titled)
    assert [row[0].soft for row in explorer.answer(Question(file=titled.id)).rows] == ["The second page", ""]
    with pytest.raises(HushgramError, match="not loaded"):
        explorer.answer(Question(file="0" * 16))


def test_intervals_hold_for_all_keys_that_are_asked_at_once(address: str, sketches: dict[str, Path]) -> None:
    keys = [f"/page/{number}" for number in range(100)]
    file = load(address, "\n".join(keys).encode())
    found = {row["key"]: row for row in rows_of(f"{address}csv?file={file}")}
    for name, path in sketches.items():
        held = Sketch.open(path).estimate(keys, among=128).to_pylist()
        assert [float(found[row["key"]][f"{name}: high"]) for row in held] == [row["high"] for row in held]
        assert {found[key][f"{name}: among"] for key in keys} == {"128"}


def test_what_is_not_resolved_has_no_number(address: str, sketches: dict[str, Path]) -> None:
    answer = Explorer([("text", Sketch.open(sketches["text"]))]).answer(Question(k=("/page/2", "/nowhere")))
    (two, nowhere), high = [row[1] for row in answer.rows], answer.data["high"].to_pylist()
    assert two.soft
    assert two.kind == "n"
    most = f"{np.ceil(high[1]):.0f}"
    assert (nowhere.text, nowhere.soft, nowhere.kind) == (f"< {most}", f"0 to {most}", "unresolved")
    assert re.search(r'>&lt; ([\d,]+)<span class="interval">0 to \1<', ask(f"{address}?k=/nowhere")[1])


def test_known_keys_are_suggested(over_time: str) -> None:
    def names(text: str, **more: str) -> list[str]:
        found = json.loads(ask(f"{over_time}names?{urlencode({'q': text, **more})}")[1])
        return [name["key"] for name in found["names"]]

    assert LAUNCH in names("LAUNCH")
    assert all(name.startswith("https://example.org/sport/") for name in names("https://example.org/sport/"))
    assert len(names("")) == 10
    assert names("zebra") == []
    file = load(over_time, b"zebra\r\nmy zebra\n")
    assert names("zebra", file=file) == ["zebra", "my zebra"]


def test_totals_by_prefix_and_column(dated: list[Path]) -> None:
    sketch = Sketch.open(dated[0])
    explorer = Explorer([("urls", sketch)])
    assert [by for by, _ in explorer.ways_to_group(Question())] == ["/2"]
    answer = explorer.answer(Question("groups"))
    named = [str(key) for key in sketch.heavy()["key"].to_pylist()]
    for row in answer.data.to_pylist():
        mine = [key for key in named if key.startswith(row["group"])]
        assert row["keys"] == len(mine)
        assert row["estimate"] == pytest.approx(sketch.total(mine).estimate)
        assert row["low"] <= row["estimate"] <= row["high"]
    (one,) = explorer.answer(
        Question("groups", by="all", prefix="https://example.org/news/")
    ).data.to_pylist()
    assert one["keys"] == sum(key.startswith("https://example.org/news/") for key in named)
    with pytest.raises(HushgramError, match="no key begins"):
        explorer.answer(Question("groups", prefix="ftp:"))
    composite = ('["FR","/a"]', '["FR","/b"]', '["DE","/a"]')
    answer = explorer.answer(Question("groups", k=composite))
    assert {row["group"]: row["keys"] for row in answer.data.to_pylist()} == {"FR": 2, "DE": 1}
    assert explorer.ways_to_group(Question(k=composite)) == [
        ("1", "column 1 of the key"),
        ("2", "column 2 of the key"),
    ]


@pytest.mark.parametrize(
    ("key", "by", "group"),
    [
        ("https://example.org/news/1", "/1", "https://example.org/"),
        ("https://example.org/news/1", "/2", "https://example.org/news/"),
        ("/page/1", "/1", "/page/"),
        ("/page", "/1", "/page"),
        ("a:b:c", ":1", "a:"),
        ('["FR","x"]', "2", "x"),
        ('["FR","x"]', "3", "keys without this column"),
    ],
)
def test_groups_of_keys(key: str, by: str, group: str) -> None:
    assert group_of(key, by) == group


def test_changes_are_those_of_compare(over_time: str, dated: list[Path]) -> None:
    first, last = Sketch.open(dated[0]), Sketch.open(dated[-1])
    held = compare(first, last, rate=0.1)
    found = rows_of(f"{over_time}csv?view=changes&before=urls-2026-11-01&rate=0.1&every=1&sort=-difference")
    assert len(found) == held.table.num_rows
    assert (found[0]["key"], found[0]["change"]) == (LAUNCH, "rose")
    assert [float(row["difference"]) for row in found] == sorted(
        (float(r["difference"]) for r in found), reverse=True
    )
    by_key = {row["key"]: row for row in held.table.to_pylist()}
    for row in found:
        assert float(row["low"]) == by_key[row["key"]]["low"]
        assert (row["before"] == "") == (row["before_resolved"] == "false")
    page = ask(f"{over_time}?view=changes&before=urls-2026-11-01&rate=0.1")[1]
    assert (
        f"{held.found} of {held.table.num_rows} keys rose or fell, at a false discovery rate of 0.1" in page
    )
    assert "\u25b2 rose" in page
    asked = Question("changes", k=(LAUNCH, "https://example.org/news/3"), before="urls-2026-11-01")
    (row,) = Explorer([(path.stem, Sketch.open(path)) for path in dated]).answer(asked).foot
    assert (row[0].text, row[1].text, row[4].text[0]) == ("total of 2 keys", "rose", "+")
    assert "compared with itself" in ask(f"{over_time}?view=changes&before=urls-2026-11-04")[1]


def test_other_parameters_are_named(sketches: dict[str, Path]) -> None:
    explorer = Explorer([(name, Sketch.open(path)) for name, path in sketches.items()])
    with pytest.raises(HushgramError, match="pure lists fingerprints"):
        explorer.answer(Question("changes"))
    answer = explorer.answer(Question("changes", k=("/page/2",), every=True))
    assert "delta 0 and 0.000001" in answer.warnings[0]
    with pytest.raises(HushgramError, match="different dates"):
        explorer.answer(Question("dates"))


def test_lines_over_dates_are_those_of_series(dated: list[Path]) -> None:
    opened = [Sketch.open(path) for path in dated]
    explorer = Explorer([(path.stem, sketch) for path, sketch in zip(dated[::-1], opened[::-1], strict=True)])
    assert explorer.names == [path.stem for path in dated]
    question = Question("dates", k=(LAUNCH, "nowhere"))
    answer = explorer.answer(question)
    assert answer.warnings == ["No sketch for 2026-11-03."]
    assert [row[0].text for row in answer.rows] == ["2026-11-01", "2026-11-02", "2026-11-04"]
    held = series(opened, [LAUNCH, "nowhere"])
    assert explorer.answer(question, True).data == held.table
    shown = held.table.to_pylist()[0]
    assert shown["date"] == datetime.date(2026, 11, 1)
    assert answer.rows[0][1].text == f"{shown['smoothed']:,.0f}"
    nowhere = held.table.filter(pa.compute.equal(held.table["key"], "nowhere")).to_pylist()
    assert [row[2].text for row in answer.rows] == [
        rounded(None, row["smoothed_low"], row["smoothed_high"])[0] for row in nowhere
    ]
    assert answer.chart.count("<polygon") == 4  # a band per key, for wide and for narrow windows
    alone = explorer.answer(Question("dates", k=(LAUNCH,), alone=True))
    assert alone.rows[0][1].text == f"{shown['estimate']:,.0f}"


@pytest.mark.parametrize(
    "question",
    [
        Question(),
        Question("groups", ("a b", "ü&="), "f", 0.8, "/2", "https://"),
        Question("changes", before="x", after="y", rate=0.1, every=True, sort="-low", rows=7),
        Question("dates", alone=True),
    ],
)
def test_an_address_holds_the_whole_question(question: Question) -> None:
    assert Question.parse(question.fields()) == question


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("?view=nothing", "there is no view"),
        ("?level=2", "between 0 and 1"),
        ("?level=much", "must be a number"),
        ("?level=nan", "between 0 and 1"),
        ("?rows=0", "rows must be"),
        ("?rows=1e9", "must be a number"),
        ("?colour=red", "does not know"),
        ("?sort=colour", "no column"),
        ("?file=0123456789abcdef", "load it again"),
        ("?view=changes&before=elsewhere", "there is no sketch"),
        ("?view=groups&by=x9", "by must be"),
        ("?view=groups&by=-", "by must be"),
        ("?view=groups&prefix=zzz", "no key begins"),
    ],
)
def test_odd_addresses_are_answered_by_a_sentence_on_the_page(over_time: str, asked: str, said: str) -> None:
    status, page = ask(over_time + asked)
    assert (status, 'role="alert"' in page) == (400, True)
    assert said.lower() in page.lower()


@pytest.mark.parametrize(
    ("content", "said", "status"),
    [
        (b"", "has no keys", 400),
        (b"\n\n", "has no keys", 400),
        ("/page/2".encode("utf-16"), "UTF-16", 400),
        (b"\xff\xfa/page", "not UTF-8", 400),
        (b"x" * (LARGEST_FILE + 1), "32 MiB", 413),
    ],
)
def test_broken_key_files_are_refused_in_a_sentence(
    address: str, content: bytes, said: str, status: int
) -> None:
    try:
        found = ask(address + "keys?name=pages.txt", content)
    except (urllib.error.URLError, ConnectionError):  # the rest of a large file is not waited for
        assert status == 413
        return
    assert found[0] == status
    assert said in json.loads(found[1])["error"]


def test_only_who_knows_the_token_and_asks_from_here(address: str) -> None:
    host = address.rsplit("/", 2)[0]
    assert ask(address + "names?q=a")[0] == 200
    assert ask(address + "names?q=a", Origin=host)[0] == 200
    assert ask(host + "/" + "0" * 32 + "/names?q=a")[0] == 404
    assert ask(host + "/names?q=a")[0] == 404
    assert ask(host + "/" + quote("\udcff", errors="surrogateescape") + "/")[0] == 404
    assert ask(address.removesuffix("/"))[0] == 404
    assert ask(address, Host="example.org")[0] == 421  # a name that was bound to 127.0.0.1
    assert ask(address + "keys", b"a", Origin="http://example.org")[0] == 403
    assert ask(address + "keys", b"a", Origin="null")[0] == 403
    assert ask(address + "keys", b"a", Content_Type="text/plain")[0] == 415  # what a form could send
    status, page = ask(address + "elsewhere")
    assert (status, "There is no page" in page) == (404, True)


def half_sent(address: str, start: bytes) -> socket.socket:
    host, port = address.split("/")[2].split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall(start)
    return connection


#: nothing, a first line, headers, a body, and another token
STARTS = [
    b"",
    b"GET / HTTP/1.1\r\n",
    b"POST /ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le",
    b"POST /ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\nabc",
    b"POST /" + b"0" * 32 + b"/ask HTTP/1.1\r\nHost: 127.0.0.1\r\n",
]


def test_half_sent_requests_without_the_token_do_not_keep_the_owner_out(address: str) -> None:
    """Some 200 connections wait with part of a request: the owner is answered among them, and they are closed."""
    with contextlib.ExitStack() as held:
        strangers = [held.enter_context(half_sent(address, start)) for start in STARTS * 40]
        for start in STARTS * 4:
            status, answer = 0, ""
            for _ in range(5):  # as a browser does, where this process was not scheduled for `_HASTE` seconds
                with contextlib.suppress(ConnectionError, urllib.error.URLError):
                    status, answer = ask(address + "names?q=/page/2")
                    break
            assert (status, "/page/2" in answer) == (200, True)
            strangers.append(held.enter_context(half_sent(address, start)))
        for stranger in strangers:  # closed or reset, before the time of the socket itself
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                while stranger.recv(1 << 16):
                    pass


def test_a_slow_owner_is_waited_for(address: str) -> None:
    """Who has shown the token may take its time with the rest."""
    token = address.rsplit("/", 2)[1]
    host = address.split("/")[2]
    body = b"/page/2\n"
    head = f"POST /{token}/keys HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/octet-stream\r\n"
    with half_sent(address, head.encode()) as owner:
        time.sleep(3)
        owner.sendall(f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode())
        time.sleep(0.5)
        owner.sendall(body)
        assert owner.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_the_downloaded_csv_is_safe_for_spreadsheets(address: str) -> None:
    status, answer = ask(address + "csv?" + urlencode([("k", "=1+1"), ("k", "@x"), ("k", "/page/2")]))
    assert status == 200
    assert [line.split(",")[0] for line in answer.splitlines()[1:]] == ['"\'=1+1"', '"\'@x"', '"/page/2"']


def test_a_link_of_before_leads_to_the_same_page(dated: list[Path], tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("a\nb\n")
    file = KeyFile.read("other name", b"a\nb\n").id
    link = f"http://127.0.0.1:1/{'0' * 32}/?view=keys&file={file}"
    with served(str(dated[0]), "--keys-file", str(tmp_path / "keys.txt"), "--link", link) as found:
        assert found.endswith(f"/?view=keys&file={file}")
        status, page = ask(found)
    assert (status, "keys.txt (2)" in page) == (200, True)


def test_it_listens_on_loopback_alone(address: str) -> None:
    assert address.startswith("http://127.0.0.1:")
    port = int(address.split(":")[2].split("/")[0])
    bound = [
        line.split()[1]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if line.split()[3] == "0A"  # listens; somebody's connection may have this port, too
    ]
    assert [place for place in bound if place.endswith(f":{port:04X}") and "0100007F" not in place] == []


# --- in a browser ---------------------------------------------------------------------------------------------------


def test_keys_are_completed_by_keyboard_and_addresses_lead_back(over_time: str, looked: Any) -> None:
    page = looked.page
    page.goto(over_time)
    page.focus("#key")
    page.keyboard.type("news/la")
    page.wait_for_selector("#names [role=option]")
    assert page.get_attribute("#key", "aria-expanded") == "true"
    page.keyboard.press("Escape")
    assert page.get_attribute("#key", "aria-expanded") == "false"
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("#names [role=option]")
    page.keyboard.press("ArrowDown")
    assert page.get_attribute("#key", "aria-activedescendant") == "name-0"
    assert page.get_attribute("#name-0", "aria-selected") == "true"
    assert looked.contrast() == []
    looked.keep("explore-autocomplete")
    page.keyboard.press("Enter")
    page.wait_for_selector(".chips")
    assert f"k={quote(LAUNCH, safe='')}" in page.url
    assert "total of 1 key" in page.inner_text("#answers")
    page.fill("#key", "/nowhere")
    page.keyboard.press("Enter")
    page.wait_for_selector(".chips li:nth-child(3)")
    assert "< " in page.inner_text("#answers")
    page.go_back()
    assert page.locator(".chips li").count() == 2
    page.go_back()
    assert page.locator(".chips").count() == 0
    assert "largest of" in page.inner_text("#answers caption")
    assert looked.errors == []
    assert all(url.startswith((over_time, "data:", "blob:")) for url in looked.requests)


def test_key_files_tables_and_downloads_in_a_browser(over_time: str, looked: Any, tmp_path: Path) -> None:
    page = looked.page
    (tmp_path / "mine.txt").write_text(f"{LAUNCH}\nhttps://example.org/shop/2\nzebra\n")
    page.goto(over_time)
    page.click("summary")
    page.click("#load")
    page.get_by_text("has no keys").wait_for()
    page.set_input_files("#upload", str(tmp_path / "mine.txt"))
    page.click("#load")
    page.wait_for_url("**file=*")
    assert "mine.txt (3)" in page.inner_text("#file")
    page.click("#answers th:nth-child(1) a")
    page.wait_for_url("**sort=key*")
    first = page.inner_text("#answers tbody tr:first-child td:first-child")
    assert (first, page.get_attribute("#answers th:first-child", "aria-sort")) == (LAUNCH, "ascending")
    with page.expect_download() as download:
        page.click("text=Download CSV")
    assert download.value.suggested_filename == "hushgram-keys.csv"
    assert len(Path(download.value.path()).read_text().splitlines()) == 4
    errors = [text for text in looked.errors if "400" not in text]  # of the file without keys
    assert errors == []


@pytest.mark.parametrize(
    "view",
    [
        "?rows=4",
        "?view=changes&rows=4",
        *(
            pytest.param(view, marks=pytest.mark.long)
            for view in ("?view=groups&rows=4", "?view=dates", "?k=zebra&rows=4")
        ),
    ],
)
def test_every_view_fits_reads_and_is_reached_by_keyboard(over_time: str, browser: Any, view: str) -> None:
    assert violations(browser, over_time + view, schemes=("light",)) == []
    assert violations(browser, over_time + view, schemes=("dark",), widths=(390,)) == []


def test_a_page_of_one_sketch_fits_too(sketches: dict[str, Path], browser: Any) -> None:
    with served(str(sketches["text"])) as address:
        assert violations(browser, f"{address}?rows=4", schemes=("dark",)) == []
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto(address)
        page.fill("#key", "/page/2")
        page.keyboard.press("Enter")
        page.wait_for_selector(".chips")
        assert not page.locator(".load").is_visible()
        assert "/page/2" in page.inner_text("#answers")
        context.close()
