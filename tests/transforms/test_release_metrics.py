"""Several metrics of one pass: the library's bytes, one order of keys for all, noise of its own for each."""

from __future__ import annotations

import doctest
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from hushgram import Metric, ReleaseParams, Weights, release_in_memory, release_metrics
from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.contributions.sums import Grid
from hushgram.errors import ParameterError
from hushgram.sparse_histogram.params import Params
from hushgram.sparse_histogram.plan import Plan, metrics_events, release_events
from hushgram.sparse_histogram.spec import share_selection
from hushgram.transforms import ReleaseMetrics
from tests.transforms.releases import KEY, collect, contents, pieces, records

DRAW = np.random.default_rng(4)
TABLE = records(400, users=30).append_column("bytes", pa.array(DRAW.integers(0, 3000, 400)))
SIZES = {"sizes": (2000, 400)}
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


NAMED = {"epsilon": "4", "delta": "1e-2", "selection": Weights(8)}


@cache
def weighted_metrics() -> dict[str, Metric]:
    """Metrics whose noise takes a second to calibrate."""
    summed = {"max_contributions": 4000, "max_value": 1000, "granularity": 50}
    return {
        "visits": Metric(ReleaseParams(max_contributions=4, **NAMED)),
        "bytes": Metric(ReleaseParams(**summed, **NAMED), "bytes"),
        "choosing": Metric(ReleaseParams(max_contributions="auto", **NAMED)),
        "once": Metric(ReleaseParams(epsilon="1", delta="1e-2", max_contributions=1)),
    }


@pytest.mark.parametrize(
    "names", [("visits", "bytes"), ("once", "bytes"), ("visits", "bytes", "choosing", "once")]
)
@pytest.mark.long
def test_keys_are_selected_once_for_all_metrics(names: tuple[str, ...], tmp_path: Path) -> None:
    """Job and library write the same bytes; metrics by weights name the same keys and say with whom they share them."""
    metrics = {name: weighted_metrics()[name] for name in names}
    at: dict[str, Any] = {"user": "user", "key": "url", "release_key": KEY}
    found = release_metrics(TABLE, metrics=metrics, path=tmp_path / "a", **at)
    step = ReleaseMetrics(metrics, path=tmp_path / "b", **at)
    collect(lambda p: p | beam.Create(pieces(TABLE, [100, 7])) | step)
    for name in metrics:
        assert contents(tmp_path / "b" / f"{name}.sketch") == contents(tmp_path / "a" / f"{name}.sketch")
    weighted = [name for name in names if name != "once"]
    listed = {name: found[name].heavy(all=True)["key"].to_pylist() for name in weighted}
    assert len(listed[weighted[0]]) > 3
    for name in weighted:
        assert sorted(listed[name]) == sorted(listed[weighted[0]])
        plan, others = found[name].plan, [other for other in weighted if other != name]
        assert plan.rounds is not None
        assert [other for other, _ in plan.rounds.others] == others
        text = plan.guarantee().sentence()
        assert ("Keys are selected together with" in text) == bool(others)
        assert Plan.from_dict(plan.to_dict()) == plan
    for name in set(names) & {"once"}:
        assert found[name].plan.rounds is None


def test_a_metric_is_refused_where_keys_cannot_be_selected_once(tmp_path: Path) -> None:
    other = ReleaseParams(epsilon="4", delta="1e-2", selection=Weights(9), max_contributions=4)
    with pytest.raises(ParameterError, match=r"selection\.max_keys must be the same for all"):
        ReleaseMetrics({**weighted_metrics(), "other": Metric(other)}, user="user", key="url", path=tmp_path)


def test_a_shared_selection_is_charged_once() -> None:
    """All events of the pass add up to the sum of what its metrics were given, and so does the mechanism of each."""
    shared = share_selection({name: each.params.resolve() for name, each in weighted_metrics().items()})
    metrics = list(shared.values())
    events = metrics_events(metrics)
    assert [event.kind for event in events].count("weighted-selection") == 1
    assert sum(event.epsilon for event in events) == sum(params.epsilon for params in metrics)
    assert sum(event.delta for event in events) == sum(params.delta for params in metrics)
    of_rho = {event.kind: event.cost.rho for event in metrics_events(metrics, charged=True)}
    alone = [release_events(params, charged=True) for params in metrics[:1]]
    assert of_rho["weighted-selection"] in [
        event.cost.rho for event in alone[0]
    ]  # each metric states the whole mechanism
    assert share_selection(shared) == shared
    first = metrics[0]
    assert Params.from_dict(first.to_dict()).gaussian == first.gaussian


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
