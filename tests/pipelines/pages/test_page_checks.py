"""The checks of pages reject what they are for, one fault at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.page_checks import violations

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><link rel="icon" href="data:,">
<style>* {{ box-sizing: border-box }} body {{ margin: 0; font-size: 16px; color: #111; background: #fff }}
button {{ min-width: 30px; min-height: 30px; color: #111; background: #fff }} svg {{ display: block; width: 100% }}
:focus {{ outline: 2px solid #111 }}</style></head><body><p id="here">A page.</p>{}</body></html>"""
FAULTS = {
    "": None,
    '<div style="width: 3000px">wide</div>': "the page is 3000 wide",
    '<div style="overflow: hidden; width: 80px; white-space: nowrap">much longer than that</div>': "cut off",
    '<div style="overflow-x: auto" tabindex="0" title="t"><div style="width: 1300px">x</div></div>': "scrolls sideways",
    '<svg viewBox="0 0 400 20"><text x="380" y="14" font-size="13">too far</text></svg>': "outside its chart",
    '<svg viewBox="0 0 9000 20"><text x="9" y="14" font-size="13">small</text></svg>': "too small to read",
    '<svg viewBox="0 0 400 20"><text y="14">one</text><text x="4" y="14">two</text></svg>': "one over the other",
    '<p style="color: #999">faint</p>': "too faint",
    '<style>::placeholder { color: #999 }</style><input aria-label="i" placeholder="faint">': "too faint",
    '<button tabindex="-1">never</button>': "not reached by keyboard",
    '<button style="outline: none">unseen</button>': "does not show it",
    '<button></button>': "without a name",
    '<a href="#nowhere">link</a>': "leads nowhere",
    '<p id="here">again</p>': "two elements have the id here",
    '<img src="data:,">': "a picture without a text",
    '<img alt="x" src="http://127.0.0.1:9/x.png">': "asks http://127.0.0.1:9/x.png",
    "<script>missing()</script>": "missing is not defined",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_told(fault: str, browser: Any, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGE.format(fault))
    found = violations(browser, f"file://{tmp_path}/page.html", widths=(1280,), schemes=("light",))
    said = FAULTS[fault]
    assert found == [] if said is None else any(said in each for each in found), found
