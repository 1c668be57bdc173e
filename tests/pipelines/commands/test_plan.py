"""`hushgram plan`: tables for people, rows for programs, a page, a picture, a config."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

import hushgram as hg
from hushgram import planning
from hushgram.errors import ParameterError
from hushgram.pipelines.commands.plan import command
from hushgram.pipelines.terminal import status
from hushgram.planner import Population, predict, settings
from hushgram.sparse_histogram.params import ReleaseParams

SIZES = ("--records", "20k", "--keys", "2e3")


def call(*words: str) -> str:
    result = CliRunner().invoke(command, [*SIZES, *words])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_everything_that_is_promised_is_said(tmp_path: Path) -> None:
    bounds = ("--max-contributions", "1", "--max-contributions", "4")
    told = call(*bounds, "--write", str(tmp_path / "new.yaml"), "-o", str(tmp_path / "plan.html"))
    for word in (
        "best",
        "next is",
        "size",
        "heavy keys",
        "expected to be false",
        "missed",
        "intervals",
        "detection limit",
    ):
        assert word in told
    for count in ("1:", "10:", "100:", "1,000:", "10,000:"):
        assert f"at a count of {count}" in told
    for keys in ("100", "1,000"):
        assert f"over {keys} random keys" in told
    page = (tmp_path / "plan.html").read_text()
    assert "(recommended)" in page
    assert "over random keys" in page
    written = yaml.safe_load((tmp_path / "new.yaml").read_text())
    assert f"max_contributions {written['privacy']['max_contributions']}: a mean" in told


@pytest.mark.long
def test_an_earlier_release_tells_the_shape_and_how_well(tmp_path: Path) -> None:
    names = np.arange(3_000)
    for most, unsure in ((1, False), (16, True)):
        path, params = tmp_path / f"{most}.sketch", hg.ReleaseParams(epsilon=4, max_contributions=most)
        hg.release_histogram(
            names, 1 + 9_000 // (names + 1), params, path, release_key=hg.ReleaseKey(bytes(32))
        )
        told = CliRunner().invoke(command, ["--like", str(path)], catch_exceptions=False).output
        assert "different keys; no data were read" in told
        assert ("the earlier release shows its number of keys to ±" in told) == unsure
    one = tmp_path / "one.sketch"
    hg.release(
        ["u"],
        ["a"],
        hg.ReleaseParams(epsilon=1, max_contributions=2),
        one,
        release_key=hg.ReleaseKey(bytes(32)),
    )
    told = CliRunner().invoke(command, ["--like", str(one)], catch_exceptions=False).output
    assert "too small to show its number of keys" in told
    assert "at a count of 10,000:" not in told


def test_rows_for_programs_and_a_picture(tmp_path: Path) -> None:
    bounds = ("--max-contributions", "1", "--max-contributions", "4")
    rows: list[dict[str, Any]] = [json.loads(line) for line in call(*bounds, "--format", "json").splitlines()]
    assert [row["max_contributions"] for row in rows] == [1, 4]
    for row in rows:
        for name in ("bytes", "error_at_1", "width_at_10000", "total_error_100", "total_width_1000"):
            assert row[name] > 0
        assert row.keys() >= {
            "detection_limit",
            "keys_above_limit",
            "heavy_from",
            "false_heavy",
            "missed_heavy",
        }
    call("-o", str(tmp_path / "plan.svg"))
    assert ET.parse(tmp_path / "plan.svg").getroot().tag.endswith("svg")


def test_what_cannot_be_written_or_solved_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"plan\.svg"):
        call("-o", str(tmp_path / "plan.png"))
    with pytest.raises(ParameterError, match="error 20 at count 200"):
        call("--target", "20 at 200")
    with pytest.raises(ParameterError, match="epsilon"):
        call("--epsilon", "much")
    assert not list(tmp_path.iterdir())


def test_a_bound_that_is_chosen_from_the_data_stays_so(tmp_path: Path) -> None:
    config = {
        "release": "urls",
        "input": {"path": "data/*.parquet", "user": "user_id", "key": "url"},
        "privacy": {"epsilon": 1, "max_contributions": "auto"},
        "output": {"path": "out/urls.sketch"},
    }
    (tmp_path / "urls.yaml").write_text(yaml.safe_dump(config))
    told = call(str(tmp_path / "urls.yaml"), "--write", str(tmp_path / "new.yaml"))
    assert "max_contributions auto" in told
    written = yaml.safe_load((tmp_path / "new.yaml").read_text())["privacy"]
    assert (written["epsilon"], written["max_contributions"]) == (1, "auto")


def test_several_processes_or_one_predict_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = ("--max-contributions", "1", "--max-contributions", "2", "--format", "json")
    found = call(*bounds)

    def none(*_: Any) -> Any:
        raise PermissionError("no more processes")

    monkeypatch.setattr(planning, "ProcessPoolExecutor", none)
    assert call(*bounds) == found
    assert len(found.splitlines()) == 2


def test_no_beam_is_loaded_for_a_plan() -> None:
    asked = "import sys, hushgram.pipelines.commands.plan as p; sys.exit('apache_beam' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0


def test_each_setting_is_simulated_once_unless_care_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def counted(params: ReleaseParams, population: Population, **how: Any) -> Any:
        seen.append(1)
        return predict(params, population, path=how.get("path"))

    monkeypatch.setattr("hushgram.planning.predict", counted)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # in this process
    population = Population.zipf(200, 2_000)
    tried = settings(ReleaseParams(epsilon=1, max_contributions=2), (2, 3), (Fraction(1),))
    found, best, _ = planning.plan_settings(tried, population, careful=False)
    assert len(seen) == len(tried) == len(found) > 1
    assert best in found


@pytest.mark.parametrize("terminal", [True, False])
def test_waiting_is_said_on_a_terminal_alone(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    with status("simulating 4 settings …"):
        before = capsys.readouterr()
    assert before.out == ""
    assert before.err == ("simulating 4 settings …" if terminal else "")
    assert capsys.readouterr().err.startswith("\r") is terminal
