"""Randomized responses: answers, intervals, and released tables with clear errors."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgram.errors import FormatError, InputError, ParameterError
from hushgram.mechanisms.randomized_response.mechanism import (
    RandomizedResponseParams,
    answer,
    hoeffding,
    randomize,
)
from hushgram.mechanisms.randomized_response.table import ResponseTable, manifest_text
from hushgram.noise.entropy import ReleaseKey

KEY = ReleaseKey(bytes(range(32)))


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    params = RandomizedResponseParams(4, secrets=2)
    truth = []
    for part in range(2):
        columns = {
            "city": rng.choice(["Paris", "Rome", None], 5000).tolist(),
            "age": rng.integers(18, 80, 5000),
            "share": rng.random(5000),
            "sick": rng.random(5000) < 0.4,
            "paid": rng.random(5000) < 0.7,
        }
        truth.append(pa.table(columns))
        for name in ("sick", "paid"):
            columns[name] = randomize(columns[name], params, KEY.source(name, part))
        pq.write_table(pa.table(columns), tmp_path / f"part-{part}.parquet")
    parts = {path.name: {"bytes": path.stat().st_size} for path in tmp_path.glob("part-*")}
    text = manifest_text(params, secrets=["sick", "paid"], public=["city", "age", "share"], parts=parts)
    (tmp_path / "manifest.json").write_text(text)
    return tmp_path, pa.concat_tables(truth)


def test_answers_cover_the_truth(table):
    path, truth = table
    opened = ResponseTable.open(path)
    assert "4-locally differentially private" in opened.guarantee
    rows = truth.to_pydict()
    every = opened.ask("sick")
    assert every.low <= sum(rows["sick"]) <= every.high
    where = ["city=Paris", "age>=30"]
    told = opened.ask("paid", where=where, confidence="0.99")
    exact = sum(
        p for p, c, a in zip(rows["paid"], rows["city"], rows["age"], strict=True) if c == "Paris" and a >= 30
    )
    assert told.low <= exact <= told.high
    assert told.confidence == 0.99
    weighted = opened.ask("sick", weight="share")
    assert (
        weighted.low <= sum(s * w for s, w in zip(rows["sick"], rows["share"], strict=True)) <= weighted.high
    )
    assert weighted.margin < every.margin


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda t: t.ask("age"), "no secret column 'age'; the table has sick, paid"),
        (lambda t: t.ask("sick", where=["paid=true"]), "'paid' is not a public column"),
        (lambda t: t.ask("sick", where=["age=old"]), "column of type int64, found text"),
        (lambda t: t.ask("sick", weight="age"), "outside 0 to 1"),
        (lambda t: t.ask("sick", weight="city"), "not numbers"),
        (lambda t: t.ask("sick", confidence=1), "confidence must be between"),
        (lambda t: t.ask("sick", where=["city"]), "expected a comparison"),
    ],
)
def test_questions_that_cannot_be_asked(table, ask, message):
    opened = ResponseTable.open(table[0])
    with pytest.raises(ParameterError, match=message):
        ask(opened)


def test_tables_that_are_torn_or_foreign(table, tmp_path_factory):
    path, _ = table
    with pytest.raises(InputError, match=r"no manifest\.json"):
        ResponseTable.open(tmp_path_factory.mktemp("empty"))
    manifest = path / "manifest.json"
    good = json.loads(manifest.read_text())
    part = path / "part-1.parquet"
    body = part.read_bytes()
    part.write_bytes(body[:-5])
    with pytest.raises(FormatError, match=r"part-1\.parquet has"):
        ResponseTable.open(path)
    part.write_bytes(body[:100] + bytes(len(body) - 100))
    with pytest.raises(FormatError, match="cannot be read"):
        ResponseTable.open(path).ask("sick")
    part.unlink()
    with pytest.raises(FormatError, match="missing"):
        ResponseTable.open(path)
    for change, message in [
        ({"version": 2}, "version 2"),
        ({"format": "x"}, "not of a table"),
        ({"parts": 3}, "lacks"),
    ]:
        manifest.write_text(json.dumps({**good, **change}))
        with pytest.raises(FormatError, match=message):
            ResponseTable.open(path)
    manifest.write_text("{")
    with pytest.raises(FormatError, match="not JSON"):
        ResponseTable.open(path)


def test_array_answers_and_their_errors():
    params = RandomizedResponseParams(2)
    bits = np.array([True, False, True])
    assert answer(bits, [0, 0, 0], params).estimate == 0
    told = answer(bits, None, params)
    assert (told.low, told.high) == (0.0, 3.0)  # cut to what is possible
    with pytest.raises(ParameterError, match="3 records but 2 weights"):
        answer(bits, [1, 1], params)
    with pytest.raises(ParameterError, match="from 0 to 1"):
        answer(bits, [1, 1, 2], params)
    with pytest.raises(ParameterError, match="epsilon must be at most 30"):
        RandomizedResponseParams(100)
    with pytest.raises(ParameterError, match="secrets must be from 1"):
        RandomizedResponseParams(1, secrets=0)
    assert hoeffding(100, params, queries=1000) > hoeffding(100, params)


def test_randomize_repeats_from_the_same_source_only():
    bits = np.random.default_rng(0).random(10_001) < 0.5
    params = RandomizedResponseParams(1)
    first = randomize(bits, params, KEY.source("r", 1))
    assert len(first) == 10_001
    assert (first == randomize(bits, params, KEY.source("r", 1))).all()
    assert (first != randomize(bits, params, KEY.source("r", 2))).mean() == pytest.approx(0.39, abs=0.05)
