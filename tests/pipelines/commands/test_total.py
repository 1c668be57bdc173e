"""`hushgram total --by`: totals per value of one column of composite keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import hushgram as hg
from hushgram.errors import ParameterError
from hushgram.pipelines.commands.total import command

KEYS = [
    json.dumps([country, path], separators=(",", ":"))
    for country in ("DE", "FR")
    for path in ("/a", "/b", "/c")
]


@pytest.fixture(scope="module")
def sketches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("sketches")
    users = [f"u{i}" for i in range(1200)]
    keys = [KEYS[i % 6] for i in range(1200)]
    for name, delta in (("pure", 0), ("named", "1e-6")):
        hg.release(users, keys, hg.ReleaseParams(epsilon=8, delta=delta, max_contributions=1), folder / name)
    return {name: str(folder / name) for name in ("pure", "named")}


def rows(*words: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(command, [*words, "--format", "json"])
    if result.exception is not None:
        raise result.exception
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("source", ["pure", "named"])
@pytest.mark.parametrize(("by", "groups", "each"), [("1", ["DE", "FR"], 600), ("2", ["/a", "/b", "/c"], 400)])
def test_totals_by_column(
    source: str, by: str, groups: list[str], each: int, sketches: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("\n".join(KEYS))
    given = ["--keys-file", str(tmp_path / "keys")] if source == "pure" else []
    found = rows(sketches[source], "--by", by, *given)
    assert [row["group"] for row in found] == groups
    for row in found:
        assert row["low"] <= row["estimate"] <= row["high"]
        assert row["estimate"] == pytest.approx(each, abs=60)
        one = [key for key in KEYS if json.loads(key)[int(by) - 1] == row["group"]]
        assert row["estimate"] == hg.Sketch.open(sketches[source]).total(one).estimate
    assert "DE" in CliRunner().invoke(command, [sketches["named"], "--by", "1"]).stdout


@pytest.mark.parametrize(
    ("source", "words", "told"),
    [
        ("pure", ["--by", "1"], "this release has no texts of keys"),
        ("named", ["--by", "1", "plain"], "needs keys of at least 2 columns"),
        ("named", ["--by", "3"], "--by 3 needs keys of at least 3 columns"),
    ],
)
def test_keys_that_have_no_such_column(
    source: str, words: list[str], told: str, sketches: dict[str, str]
) -> None:
    with pytest.raises(ParameterError) as caught:
        rows(sketches[source], *words)
    assert told in str(caught.value)
