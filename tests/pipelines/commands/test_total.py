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


@pytest.mark.parametrize(("source", "given"), [("pure", True), ("named", True), ("named", False)])
@pytest.mark.parametrize(("by", "groups", "each"), [("1", ["DE", "FR"], 600), ("2", ["/a", "/b", "/c"], 400)])
def test_totals_by_column(
    source: str, by: str, groups: list[str], each: int, given: bool, sketches: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("\n".join(KEYS))
    found = rows(sketches[source], "--by", by, *(["--keys-file", str(tmp_path / "keys")] if given else []))
    assert [row["group"] for row in found] == groups
    for row in found:
        name = "estimate" if given else "named"
        assert row["low"] <= row[name] <= row["high"]
        assert row[name] == pytest.approx(each, abs=60)
        assert given or row["estimate"] is None
        one = [key for key in KEYS if json.loads(key)[int(by) - 1] == row["group"]]
        assert row[name] == hg.Sketch.open(sketches[source]).total(one).estimate
    assert "DE" in CliRunner().invoke(command, [sketches["named"], "--by", "1"]).stdout


def test_groups_of_named_keys_say_what_is_not_known(tmp_path: Path) -> None:
    """The group with most records has few named keys: it must not look smaller than the other one."""
    users, keys = [], []
    for i in range(4_000):  # FR: 2,000 keys that are too rare to be named; DE: one that is
        keys += [f'["FR","{i // 2}"]', '["DE","/a"]'][: 1 + (i < 600)]
        users += [f"u{i}"] * (1 + (i < 600))
    keys += ['["FR","/b"]'] * 200
    users += [f"w{i}" for i in range(200)]
    params = hg.ReleaseParams(epsilon="1", delta="1e-6", max_contributions=2, selection=hg.Threshold())
    listed = hg.ReleaseParams(epsilon="1", max_contributions=2)
    hg.release(users, keys, params, tmp_path / "names", release_key=hg.ReleaseKey(bytes(32)))
    hg.release_public(users, keys, sorted(set(keys))[:3], listed, tmp_path / "public")
    for path in (tmp_path / "names", tmp_path / "public"):
        found = {row["group"]: row for row in rows(str(path), "--by", "1")}
        assert list(found) == sorted(found)  # never ranked
        out = CliRunner().invoke(command, [str(path), "--by", "1"])
        assert out.stdout.splitlines()[0].split() == ["group", "keys", "named", "low", "high"]
        if path.name == "public":
            assert found["DE"]["high"] is None
            assert "not known" in out.stdout
            continue
        assert found["FR"]["named"] < found["DE"]["named"]
        assert found["FR"]["estimate"] is None
        assert found["FR"]["low"] <= 4_200 <= found["FR"]["high"]
        assert found["DE"]["low"] <= 600 <= found["DE"]["high"]
        assert found["FR"]["high"] > found["DE"]["low"]


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
