"""The histogram over users, released by the job as by the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest

import hushgram as hg
from hushgram.transforms import ReleaseMetrics, ReleaseSparseHistogram
from hushgram.transforms.shuffle.combining import Shards
from tests.transforms.releases import KEY, records

SETTINGS: dict[str, dict[str, Any]] = {
    "stated": {"max_per_key": 2},
    "auto": {"max_contributions": "auto"},
    "weighted": {"delta": "1e-3"},
    "weighted auto": {"delta": "1e-3", "max_contributions": "auto"},
    "values": {"max_contributions": 40, "max_value": 8, "granularity": 2},
    "several": {},
    "several weighted": {"delta": "1e-3"},
}


def table() -> pa.Table:
    rows = records(1500, 60)
    return rows.append_column("size", pa.array([(i * 7919) % 31 / 2 for i in range(len(rows))]))


def same_files(one: Path, other: Path) -> None:
    names = sorted(file.relative_to(one) for file in one.rglob("*") if file.is_file())
    assert names == sorted(file.relative_to(other) for file in other.rglob("*") if file.is_file())
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.long
def test_job_and_library_write_the_same_bytes(name: str, tmp_path: Path) -> None:
    rows, value = table(), "size" if name == "values" else None
    given = {"epsilon": 4, "max_contributions": 4, **SETTINGS[name]}
    params = hg.ReleaseParams(**given)
    sums = hg.ReleaseParams(epsilon=4, delta=params.delta, **SETTINGS["values"])
    metrics = {"views": hg.Metric(params), "bytes": hg.Metric(sums, "size")}
    batches = [rows.slice(at, 400) for at in range(0, len(rows), 400)]
    columns: dict[str, Any] = {"user": "user", "key": "url", "release_key": KEY}
    shards = Shards(users=3, groups=2)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        read = pipeline | beam.Create(batches)
        if name.startswith("several"):
            _ = read | ReleaseMetrics(metrics, path=tmp_path / "job", shards=shards, **columns)
        else:
            path = tmp_path / "job"
            _ = read | ReleaseSparseHistogram(params, path=path, value=value, shards=shards, **columns)
    if name.startswith("several"):
        found = hg.release_metrics(rows, metrics=metrics, path=tmp_path / "library", **columns)
    else:
        found = {"one": hg.release(rows, params=params, path=tmp_path / "library", values=value, **columns)}
    same_files(tmp_path / "job", tmp_path / "library")
    for sketch in found.values():
        assert sketch.plan.users is not None
        assert "contributions" in {part.kind for part in sketch.guarantee.parts}
    assert sum(part.epsilon for part in found[min(found)].guarantee.parts) >= 4


def test_much_epsilon_shows_the_exact_share(tmp_path: Path) -> None:
    rows = table()
    params = hg.ReleaseParams(epsilon=90, max_contributions=4)
    sketch = hg.release(rows, params=params, user="user", key="url", release_key=KEY)
    counted: dict[str, set[str]] = {}
    for user, url in zip(rows["user"].to_pylist(), rows["url"].to_pylist(), strict=True):
        counted.setdefault(user, set()).add(url)
    assert sketch.plan.users is not None
    found = sketch.plan.users.kept(4)
    assert found is not None
    up_to = found.up_to or 64
    have = [min(len(urls), 64) for urls in counted.values() if found.up_to is None or len(urls) <= up_to]
    assert found.low <= sum(min(n, 4) for n in have) / sum(have) <= found.high
    assert "how much a single key lost is not known" in str(sketch.kept_in_words())


def test_a_user_of_another_metric_alone_decides_nothing(tmp_path: Path) -> None:
    """What such a user has of that metric is no part of this one."""
    common: dict[str, Any] = {"delta": "1e-3", "max_contributions": 8, "max_value": 4, "granularity": 1}
    views = hg.ReleaseParams(epsilon=4, **common)
    sizes = hg.ReleaseParams(epsilon=4, selection=hg.Threshold(), **common)
    metrics = {"views": hg.Metric(views, "one"), "bytes": hg.Metric(sizes, "size")}
    rows = table().append_column("one", pa.array([1] * 1500))
    eve = pa.table({"user": ["eve"], "url": rows["url"][:1], "size": [1000.0], "one": [0]})
    found = [
        hg.release_metrics(
            each, metrics=metrics, path=tmp_path / name, user="user", key="url", release_key=KEY
        )["views"].plan.users
        for name, each in {"without": rows, "with": pa.concat_tables([rows, eve.cast(rows.schema)])}.items()
    ]
    assert found[0] == found[1] is not None
