"""Sums of values through Beam: the library's bytes, whatever the form of the records."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from hushgram import ReleaseParams
from hushgram.errors import InputError, ParameterError
from hushgram.release_in_memory import release, release_histogram, release_public
from hushgram.transforms import ReleaseSparseHistogram
from tests.transforms.releases import KEY, collect, contents, pieces, records

DRAW = np.random.default_rng(4)
TABLE = records(400, users=30).append_column("bytes", pa.array(DRAW.lognormal(6, 1.5, 400)))
CHOSEN: dict[str, Any] = {
    "epsilon": "2",
    "max_contributions": 4000,
    "max_value": 1000,
    "granularity": "62.5",
    "sizes": (2000, 400),
}


class Visit(NamedTuple):
    user: str
    url: str
    bytes: float


def mixed() -> list[Any]:
    rows = TABLE.to_pylist()
    return [
        TABLE.slice(0, 100),
        *pieces(TABLE.slice(100, 100), [10]),
        *(beam.Row(**row) for row in rows[200:250]),
        *(Visit(**row) for row in rows[250:300]),
        *rows[300:350],
        *(tuple(row.values()) for row in rows[350:]),
        {"user": "u1", "url": "/", "bytes": -1.0},
        {"user": "u1", "url": "/", "bytes": "12"},
        pa.table({"user": ["u1"] * 3, "url": ["/"] * 3, "bytes": [float("nan"), float("inf"), -2.0]}),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"delta": "0.001"},
        {"max_contributions": "auto", "sizes": None},
        {"user": None, "max_contributions": 1000},
        {"public_keys": ["https://example.org/1", "https://example.org/2", "/none"]},
        {"user": None, "max_contributions": 1000, "public_keys": ["https://example.org/1"]},
    ],
    ids=["fingerprints", "weights", "auto", "records", "list", "list of records"],
)
def test_the_librarys_bytes(changes: dict[str, Any], tmp_path: Path) -> None:
    changes = dict(changes)
    user, listed = changes.pop("user", "user"), changes.pop("public_keys", None)
    chosen = ReleaseParams(**{**CHOSEN, **changes})
    users = None if user is None else TABLE["user"]
    if listed is None:
        release(users, TABLE["url"], chosen, tmp_path / "a", values=TABLE["bytes"], release_key=KEY)
    else:
        release_public(
            users, TABLE["url"], listed, chosen, tmp_path / "a", values=TABLE["bytes"], release_key=KEY
        )
    step = ReleaseSparseHistogram(
        chosen, user=user, key="url", value="bytes", path=tmp_path / "b", public_keys=listed, release_key=KEY
    )
    given = mixed() if user is not None else mixed()[:1] + pieces(TABLE.slice(100), [40])
    collect(lambda p: p | beam.Create(given, reshuffle=False) | step)
    assert contents(tmp_path / "b") == contents(tmp_path / "a")


def test_answers_are_in_the_terms_of_the_values(tmp_path: Path) -> None:
    n = 40_000
    users, keys = np.arange(n), np.where(np.arange(n) < 20_000, "big", "small")
    values = np.where(np.arange(n) < 20_000, 700.0, 50.0)
    chosen = ReleaseParams(epsilon="1", max_contributions=1000, max_value=1000, granularity="62.5")
    sketch = release(users, keys, chosen, values=values, release_key=KEY)
    found = sketch.estimate(["big", "small", "none"], estimator="confidence")
    estimates = found["estimate"].to_pylist()
    assert abs(estimates[0] - 14e6) < 30_000  # rounding: 62.5·√20,000/2 = 4,400; noise: 1,000·√2/0.49
    assert abs(estimates[1] - 1e6) < 30_000
    assert estimates[2] < 20_000
    for at, truth in enumerate((14e6, 1e6, 0)):
        assert found["low"][at].as_py() - 15_000 <= truth <= found["high"][at].as_py() + 15_000
    total = sketch.total(["big", "small"])
    assert abs(total.estimate - 15e6) < 60_000
    heavy = sketch.heavy(keys=["big", "small"]).to_pylist()
    assert {row["key"] for row in heavy} >= {"big", "small"}
    assert max(row["value"] for row in heavy) == pytest.approx(14e6, rel=0.01)
    assert "sum of" in sketch.detection_limit().sentence()
    assert "at most 1000 in all and 1000 for one key" in sketch.guarantee.sentence()


def test_real_counts(tmp_path: Path) -> None:
    chosen = ReleaseParams(epsilon="1", max_contributions=10, max_value=10, granularity="0.5")
    keys = [f"k{i}" for i in range(1000)]
    counts = np.full(1000, 5000.25)
    sketch = release_histogram(keys, counts, chosen, release_key=KEY)
    total = sketch.total(keys)
    assert abs(total.estimate - counts.sum()) < 5_000
    frame = pa.table({"key": keys, "count": counts})
    again = release_histogram(frame, key="key", count="count", params=chosen, release_key=KEY)
    assert again.estimate(keys).equals(sketch.estimate(keys))
    with pytest.raises(InputError, match="negative"):
        release_histogram(["a"], [-1.0], chosen)
    with pytest.raises(InputError, match="as many"):
        release_histogram(["a"], [1.0, 2.0], chosen)


def test_values_and_their_bounds_go_together(tmp_path: Path) -> None:
    counted, added = ReleaseParams(epsilon="1", max_contributions=4), ReleaseParams(**CHOSEN)
    with pytest.raises(ParameterError, match="max_value and granularity"):
        release(TABLE["user"], TABLE["url"], counted, values=TABLE["bytes"])
    with pytest.raises(ParameterError, match="column of values"):
        release(TABLE["user"], TABLE["url"], added)
    with pytest.raises(ParameterError, match="column of values"):
        ReleaseSparseHistogram(added, user="user", key="url", path=tmp_path / "a")
    fine = ReleaseParams(epsilon="1", max_contributions=10_000, max_value=10_000, granularity=1)
    with pytest.raises(ParameterError, match="without users"):
        release(None, TABLE["url"], fine, values=TABLE["bytes"])
    frame = release(TABLE, user="user", key="url", values="bytes", params=added, release_key=KEY)
    columns = release(TABLE["user"], TABLE["url"], added, values=TABLE["bytes"], release_key=KEY)
    assert frame.estimate(["a"]).equals(columns.estimate(["a"]))
    text = pa.table({"user": ["u"], "url": ["/"], "bytes": ["12"]})
    step = ReleaseSparseHistogram(added, user="user", key="url", value="bytes", path=tmp_path / "b")
    with pytest.raises(Exception, match="values must be whole numbers"):
        collect(lambda p: p | beam.Create([text]) | step)


def test_values_beyond_a_counter_fail_no_job(tmp_path: Path) -> None:
    chosen = ReleaseParams(epsilon="1", max_contributions="40", max_value="10", granularity="0.001")
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        rows = pipeline | beam.Create([(f"u{i % 5}", "/a", 4.6e18) for i in range(5_000)])
        rows | ReleaseSparseHistogram(chosen, user="user", key="url", value="v", path=tmp_path / "a.sketch")
    assert (tmp_path / "a.sketch" / "manifest.json").exists()
