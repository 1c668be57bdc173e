"""Several metrics of one pass: the library's bytes, one order of keys for all, noise of its own for each."""

from __future__ import annotations

import doctest
from fractions import Fraction
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from hushgram import Metric, ReleaseParams, release_in_memory, release_metrics
from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.contributions.sums import Grid
from hushgram.errors import ParameterError
from hushgram.transforms import ReleaseMetrics
from tests.transforms.releases import KEY, collect, contents, pieces, records

DRAW = np.random.default_rng(4)
TABLE = records(400, users=30).append_column("bytes", pa.array(DRAW.integers(0, 3000, 400)))
SIZES = {"expected_records": 2000, "expected_keys": 400}
VISITS = Metric(ReleaseParams(epsilon="1/2", max_contributions=4, **SIZES))
BYTES = Metric(
    ReleaseParams(epsilon="1/2", max_contributions=4000, max_value=1000, granularity=50, **SIZES), "bytes"
)
AUTO = Metric(ReleaseParams(epsilon="1/2", max_contributions="auto"))


@pytest.mark.parametrize("user", ["user", None])
@pytest.mark.parametrize(
    "metrics", [{"visits": VISITS, "bytes": BYTES}, {"a": AUTO, "b": BYTES, "c": VISITS}]
)
def test_the_librarys_bytes(metrics: dict[str, Metric], user: str | None, tmp_path: Path) -> None:
    if user is None:
        record = ReleaseParams(epsilon="1/2", max_contributions=1000, max_value=1000, granularity=50, **SIZES)
        metrics = {"visits": VISITS, "bytes": Metric(record, "bytes")}
    release_metrics(
        TABLE, metrics=metrics, path=tmp_path / "a", user=user, key="url", release_key=KEY, name="both"
    )
    step = ReleaseMetrics(metrics, user=user, key="url", path=tmp_path / "b", release_key=KEY, name="both")
    found = collect(lambda p: p | beam.Create(pieces(TABLE, [100, 7])) | step)
    assert sorted(found) == sorted(str(tmp_path / "b" / f"{name}.sketch") for name in metrics)
    for name in metrics:
        assert contents(tmp_path / "b" / f"{name}.sketch") == contents(tmp_path / "a" / f"{name}.sketch")


def test_keys_are_kept_in_one_order_for_all_metrics() -> None:
    """The keys that count for one bound are among those that count for a larger one."""
    keys = [f"k{i}" for i in range(50)]
    values = (None, (pa.array([100.0] * 50), Grid(Fraction(10), 10)))
    rows = Contributions.of(["u"] * 50, keys, KEY, texts=True, values=values)
    visits = rows.metric(0).bounded(Bounds(5, 1)).texts
    sums = rows.metric(1).bounded(Bounds(80, 10, weighted=True)).texts
    assert visits is not None
    assert sums is not None
    assert len(visits) == 5
    assert len(sums) == 8
    assert set(visits.to_pylist()) < set(sums.to_pylist())


def test_noise_of_two_metrics_is_not_the_same(tmp_path: Path) -> None:
    """The same metric twice: the same bounded data, other noise."""
    found = release_metrics(
        TABLE, metrics={"one": VISITS, "two": VISITS}, path=tmp_path, user="user", key="url", release_key=KEY
    )
    assert not found["one"].heavy(all=True).equals(found["two"].heavy(all=True))


def test_names_and_parameters_go_together(tmp_path: Path) -> None:
    text = Metric(ReleaseParams(epsilon="1", delta="1e-6", max_contributions=2))
    for metrics, words in (
        ({}, "at least one"),
        ({"../up": VISITS}, "lower-case"),
        ({"bytes": Metric(VISITS.params, "bytes")}, "max_value and granularity"),
        ({"bytes": Metric(BYTES.params)}, "a column of values"),
        ({"one": VISITS, "two": text}, "delta must be 0 for all"),
    ):
        with pytest.raises(ParameterError, match=words):
            ReleaseMetrics(metrics, user="user", key="url", path=tmp_path)


def test_the_examples_in_docstrings_run() -> None:
    assert doctest.testmod(release_in_memory).failed == 0
