"""The Content-Security-Policy of every page: its own style and script by their hashes, and nothing else runs."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from hushgram.pipelines.cli import main
from hushgram.pipelines.pages import content_policy


class Page(HTMLParser):
    """Policy, inline styles and scripts, and attributes that a policy without 'unsafe-inline' forbids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.policy = ""
        self.before_policy: list[str] = []
        self.inline: dict[str, list[str]] = {"style": [], "script": []}
        self.forbidden: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        if tag == "meta" and found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"] or ""
        if not self.policy:
            self.before_policy.append(tag)
        self.forbidden += [
            name for name in found if name == "style" or name.startswith("on") or name == "src"
        ]
        if tag in self.inline:
            self._inside = tag
            self.inline[tag].append("")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.inline[self._inside][-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0


@pytest.fixture(scope="module")
def explored(sketches: dict[str, Path]) -> Iterator[str]:
    command = [sys.executable, "-m", "hushgram.pipelines", "explore", str(sketches["text"])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(params=["report", "over_time", "plan", "explore"])
def page(request: pytest.FixtureRequest, sketches: dict[str, Path], explored: str, tmp_path: Path) -> Any:
    """Name, address, text and the policy of a header."""
    target = str(tmp_path / "page.html")
    if request.param == "explore":
        with urllib.request.urlopen(explored, timeout=20) as answer:
            return "explore", explored, answer.read().decode(), answer.headers["Content-Security-Policy"]
    if request.param == "report":
        run("report", str(sketches["text"]), "-o", target)
    elif request.param == "over_time":
        run("report", str(sketches["text"]), str(sketches["text"]), "-o", target)
    else:
        run("plan", "--records", "1e4", "--keys", "1e3", "-o", target)
    return request.param, f"file://{target}", Path(target).read_text(), None


def test_everything_inline_is_named_by_its_hash(page: Any) -> None:
    name, _, text, header = page
    found = Page(text)
    assert found.before_policy == ["html", "head", "meta"]  # it holds for all that follows
    assert found.policy == content_policy(name)
    assert "unsafe" not in found.policy
    assert found.forbidden == []
    assert [len(texts) for texts in found.inline.values()] == [1, 0 if name == "plan" else 1]
    for tag, texts in found.inline.items():
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
        (stated,) = re.findall(rf"{tag}-src ([^;]*)", found.policy)
        assert stated == (" ".join(f"'sha256-{each}'" for each in hashes) or "'none'")
    if header is not None:
        assert header == f"{found.policy}; frame-ancestors 'none'"


@pytest.mark.parametrize("looked", ["light"], indirect=True)
def test_a_browser_reports_no_violation_and_the_page_works(page: Any, looked: Any) -> None:
    name, address, _, _ = page
    looked.page.goto(address)
    assert looked.page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") == "960px"
    if name == "report":
        assert looked.page.locator("#keys input").is_visible()  # shown by the script
    if name == "explore":
        assert looked.page.locator("summary").is_visible()  # shown by the script
        looked.page.fill("#key", "/page/2")
        looked.page.keyboard.press("Enter")
        looked.page.wait_for_selector(".chips")
    assert looked.errors == []


@pytest.mark.parametrize("looked", ["light"], indirect=True)
@pytest.mark.parametrize(
    "markup",
    [
        "<script>window.ran = 1</script>",
        '<img src="data:," onerror="window.ran = 1">',
        '<svg onload="window.ran = 1"></svg>',
        '<script src="data:text/javascript,window.ran=1"></script>',
        '<p id="p" style="position: fixed">x</p>',
    ],
)
def test_a_browser_runs_nothing_that_got_into_a_page(
    markup: str, sketches: dict[str, Path], looked: Any, tmp_path: Path
) -> None:
    """Were escaping ever to fail, the policy would still hold."""
    run("report", str(sketches["text"]), "-o", str(tmp_path / "report.html"))
    text = (tmp_path / "report.html").read_text().replace("<main>", f"<main>{markup}")
    (tmp_path / "report.html").write_text(text)
    looked.page.goto(f"file://{tmp_path}/report.html")
    for _ in range(100):
        looked.page.wait_for_timeout(100)
        if any("Content Security Policy" in told for told in looked.errors):
            break
    assert looked.page.evaluate("window.ran") is None
    if 'id="p"' in markup:
        assert looked.page.evaluate("getComputedStyle(document.getElementById('p')).position") == "static"
    assert any("Content Security Policy" in told for told in looked.errors)
