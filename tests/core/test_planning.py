"""`hg.plan` says what `hushgram plan` says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import hushgram as hg
from hushgram.errors import ParameterError
from hushgram.pipelines.commands.plan import command


def test_the_same_prediction_as_on_the_command_line() -> None:
    words = "--records 3000 --keys 100 --users 900 --delta 1e-6 --epsilon 1 --epsilon 2 --max-contributions 4"
    ran = CliRunner().invoke(command, [*words.split(), "--format", "json"])
    found = hg.plan(records=3000, keys=100, users=900, delta="1e-6", epsilon=[1, 2], max_contributions=4)
    assert ran.exit_code == 0
    assert [json.loads(line) for line in ran.stdout.splitlines()] == found.table.to_pylist()
    assert found.params is found.best.params
    assert found.best in found.predictions
    assert found.to_polars().columns == found.table.column_names
    assert "<table>" in found._repr_html_()
    assert found.why in repr(found)


def test_parameters_and_earlier_releases(tmp_path: Path) -> None:
    params = hg.ReleaseParams(epsilon="3", delta="1e-6", max_contributions=2)
    users, keys = [f"u{i}" for i in range(300)], [f"k{i % 7}" for i in range(300)]
    hg.release(users, keys, params, tmp_path / "a.sketch", release_key=hg.ReleaseKey(bytes(32)))
    for like in (tmp_path / "a.sketch", hg.Sketch.open(tmp_path / "a.sketch")):
        found = hg.plan(params, like=like)
        assert {one.params.epsilon for one in found.predictions} == {3}
        assert {one.params.max_contributions for one in found.predictions} == {2}


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({}, "state records and keys, or like=SKETCH"),
        ({"records": 10}, "state records and keys, or like=SKETCH"),
        ({"records": 10, "keys": 20}, "keys must be from 1 to the 10 records"),
        ({"records": 1e6, "keys": 20}, "records must be a whole number from 1"),
        ({"records": 10, "keys": 2, "epsilon": "many"}, "epsilon"),
    ],
)
def test_mistakes(named: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        hg.plan(**named)
