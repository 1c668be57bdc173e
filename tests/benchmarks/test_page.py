"""Benchmark pages: docs/benchmarks.md has every benchmark and where others win, benchmarks/out every figure."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import bars, methods, page
from benchmarks.figures import drawn

ROOT = Path(__file__).parents[2]
#: modules that are parts of others, and no benchmark by themselves
PARTS = {
    "access_log",
    "bars",
    "clip_baselines",
    "data",
    "figures",
    "key_selection_peers",
    "page",
    "peers",
    "selection_bars",
    "selection_laws",
    "sharper",
}


def rows() -> list[dict[str, Any]]:
    """Two kinds of data at two sizes, in which the list alone wins for large counts."""
    out = []
    for data in methods.CURVES[:2]:
        for bits in (4, 8):
            for place, name in enumerate(methods.METHODS):
                errors = dict.fromkeys(methods.SPANS, 10.0 + place)
                errors["> 1,000"] = 3.0 if name == "threshold alone" else 9.0
                row = {
                    "data": data,
                    "delta": "0",
                    "C": 8,
                    "asked_bits": bits,
                    "method": name,
                    "bits": bits + 2.0,
                }
                out.append(
                    {
                        **row,
                        "how": "",
                        "rmse": errors,
                        "totals": {"any": 0.01 if name == "Count-Min" else 0.1},
                    }
                )
    return out


def defaults() -> list[dict[str, Any]]:
    """The default, beaten for large counts alone."""
    return [
        {"data": data, "delta": "0", "C": 8, "method": name, "bits": 9.0,
         "rmse": {**dict.fromkeys(methods.SPANS, 10.0), "> 1,000": error}}
        for data in methods.CURVES[:2]
        for name, error in (("default", 9.0), ("threshold alone", 3.0), ("Count-Min", 8.9))
    ]  # fmt: skip


def body(name: str, **more: Any) -> dict[str, Any]:
    lines = [
        {"what": f"figure of {name}", "value": 1.5, "bar": "≥ 1", "reached": name != "ledger", "unit": "x"}
    ]
    run = {
        "arguments": [],
        "date": "2026-01-01 00:00 UTC",
        "seconds": 60,
        "cpu": 50,
        "load": 0.5,
        "others": 0.1,
    }
    return {"benchmark": name, **run, **more, "sections": [{"title": f"Part {name}", "rows": lines}]}


def test_every_benchmark_has_a_place_on_the_page() -> None:
    modules = {file.stem for file in (ROOT / "benchmarks").glob("*.py") if not file.stem.startswith("_")}
    assert modules - PARTS == set(page.BENCHMARKS)


def test_the_page_tells_what_was_run_and_where_others_win(tmp_path: Path) -> None:
    figure = {"name": "one", "title": "One & all", "x": "x", "y": "y", "log_x": True, "log_y": False}
    figure["lines"] = {"a": [[1, 1], [10, 2]], "b": [[1, 2]]}
    (tmp_path / "out").mkdir()
    for name in page.BENCHMARKS:
        more = {"methods": {"methods": rows(), "defaults": defaults()}, "svt": {"figures": [figure]}}.get(
            name, {}
        )
        if name != "engines":
            (tmp_path / "out" / f"{name}.json").write_text(json.dumps(body(name, **more)))
    assert page.write_page(tmp_path / "out", tmp_path / "page.md") == ["engines"]
    text, full = (tmp_path / "page.md").read_text(), (tmp_path / "out" / page.FULL).read_text()
    for name in page.BENCHMARKS:
        assert f"\n## {name}\n" in text
        assert f"\n## {name}\n" in full
        assert f"`python -m benchmarks.{name}`" in text
    assert "| δ = 0, C = 8 | > 1,000 | threshold alone | Zipf 1.1; log-normal | 0.33 |" in text
    assert "| δ = 0, C = 8: Zipf 1.1 | Count-Min | 0.010 | 0.100 |" in text
    assert "* ledger: figure of ledger: 1.5 x, bar ≥ 1." in text
    assert "not run" in text
    for folder, shown in ((tmp_path, text), (tmp_path / "out", full)):
        pictures = re.findall(r"\(figures/([^)]+)\)", shown)
        assert len(pictures) > 1
        for name in pictures:
            ElementTree.parse(folder / "figures" / name)


def test_a_long_section_shows_main_figures_and_the_worst_of_each_kind_of_bar() -> None:
    bars_of = [
        {"what": f"data {i}: intervals hold", "value": 0.9 + i / 1000, "bar": "≥ 0.91", "reached": i >= 10}
        for i in range(40)
    ]
    notes = [{"what": "main figure", "value": "1"}, {"what": "a detail", "value": "2"}]
    lone = [{"what": "size", "value": 3.0, "bar": "≤ 2", "reached": False}]
    text = "\n".join(page._main_section({"title": "T", "rows": [*bars_of, *notes, *lone]}, ("main",)))
    assert "| intervals hold | 0.9 | ≥ 0.91 | 30 of 40 |" in text
    assert "| main figure | 1 |" in text
    assert "| size | 3 | ≤ 2 | **missed** |" in text
    assert "a detail" not in text


def test_a_short_section_is_shown_whole() -> None:
    rows = [{"what": f"figure {i}", "value": str(i)} for i in range(5)]
    text = "\n".join(page._main_section({"title": "T", "rows": rows}, ()))
    assert all(f"| figure {i} | {i} |" in text for i in range(5))


@pytest.mark.parametrize("log", [False, True])
def test_a_picture_names_every_line(log: bool) -> None:
    lines = {f"line {i}": [[1, i + 1], [100, 5]] for i in range(9)}
    figure = {"title": "T", "x": "x", "y": "y", "log_x": log, "log_y": log, "lines": lines}
    text = drawn(figure)
    root = ElementTree.fromstring(text)
    found = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert set(lines) <= set(found)
    assert len(text) < 20_000


def test_a_run_keeps_its_figures_as_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "OUT", tmp_path / "out")
    monkeypatch.setattr(sys, "argv", ["benchmarks/some.py"])
    report = bars.Report("Some")
    report.bar("a", 2, 1)
    report.draw("n", "t", "x", "y", {"l": [[1, 2]]})
    report.bar("b", 2, 1, at_most=True)
    told = json.loads((tmp_path / "out" / "some.json").read_text())
    assert [row["reached"] for row in told["sections"][-1]["rows"]] == [True, False]
    assert told["figures"][-1]["name"] == "n"
    assert {"date", "seconds", "cpu", "load", "others", "arguments"} <= set(told)
    assert report.exit_code() == 1


def test_the_page_as_it_stands_is_whole() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    for name in page.BENCHMARKS:
        assert f"\n## {name}\n" in text
    for name in re.findall(r"\(figures/([^)]+)\)", text):
        assert (page.PAGE.parent / "figures" / name).stat().st_size < 300_000
    assert "\n## Where another method is better\n" in text
    assert len(text.split()) < 9_000
    shown = set(re.findall(r"\(figures/(bench-[^)]+)\)", text))
    assert {path.name for path in (page.PAGE.parent / "figures").glob("bench-*")} == shown


def test_an_unknown_benchmark_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nothing"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("no benchmark 'nothing'; there are pipeline, group_by, core")
