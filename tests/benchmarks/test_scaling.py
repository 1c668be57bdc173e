"""The script by which `benchmarks.scaling` measures a release runs on the stages as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from benchmarks import pipeline, scaling
from hushgram import ReleaseKey
from hushgram.contributions.bounding import BoundingSpec, Bounds
from hushgram.transforms.bound_contributions import BoundContributions
from hushgram.transforms.merge_histograms import MergeHistograms
from hushgram.transforms.shuffle import Cost
from hushgram.transforms.shuffle.coders import ContributionsCoder, HistogramCoder
from hushgram.transforms.shuffle.combining import shards_for
from tests.transforms.releases import collect

pytestmark = pytest.mark.long


def test_a_small_release_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "DATA", tmp_path / "bench")
    (tmp_path / "bench").mkdir()
    figures = scaling.run(1_000, 20)
    assert figures["sent"]["ContributionsCoder"][1] > 0
    assert figures["counters"]["keys"] > 0
    assert {"Take", "BoundUsers", "SelectShards"} <= set(figures["stages"])
    pieces, sent, *_ = figures["sent"]["ContributionsCoder"]
    predicted = scaling.cost(figures)
    assert pieces == predicted.pieces == 20
    assert 24_000 < sent <= predicted.first_shuffle
    assert 1 / 2 < predicted.memory / figures["memory"] < 2


def test_the_formulas_at_two_sizes() -> None:
    """Two shuffles above 4,096 shards; memory follows the rows of a shard."""
    few = Cost(rows=10**9, users=10**8, keys=10**7, shards=4_096, groups=256)
    many = replace(few, shards=65_536)
    assert few.pieces == 4_096 * 477
    assert few.first_shuffle == 24 * 10**9 + 100 * few.pieces
    assert many.first_shuffle > 2 * 24 * 10**9
    assert many.cpu_seconds > few.cpu_seconds
    assert replace(few, rows=10**11).memory > 130 * 10**11 / 4_096 > many.memory


@pytest.mark.parametrize("text", [None, 50])
def test_no_element_is_above_100_mb(text: float | None) -> None:
    """At 10^12 records and 10^10 keys; with 256 groups, one would be."""
    shards = shards_for(10**13)
    large = Cost(10**12, 10**11, 10**10, shards.users, shards.groups, text)
    assert max(large.elements.values()) < 100e6
    assert max(replace(large, groups=256).elements.values()) > 400e6
    assert large.memory < 3e9
    for size in range(24, 44):  # sizes below, as shards follow them: 10 bytes per record, 100 records per key
        few = shards_for(1 << size)
        cost = Cost((1 << size) // 10, (1 << size) // 100, (1 << size) // 1000, few.users, few.groups, text)
        assert max(cost.elements.values()) < 100e6


@pytest.mark.parametrize("texts", [False, True])
def test_groups_have_the_bytes_of_the_formula(texts: bool) -> None:
    """Complete groups of a release with 2,048 shards of users, and of its kept rows."""
    draw = np.random.default_rng(5)
    users, keys = draw.integers(0, 20_000, 60_000), draw.integers(0, 30_000, 60_000)
    table = pa.table({"user": users, "url": [f"{key:050d}" for key in keys]})
    bounding = BoundingSpec("user", "url", ReleaseKey(bytes(32)), (Bounds(8, 1),), texts)

    def groups(p: beam.Pipeline) -> beam.PCollection:
        parts = p | beam.Create([table]) | BoundContributions(bounding, 2_048)
        return parts | MergeHistograms(512, texts=texts)

    found = [part for _, part in collect(groups)]
    sizes = [len(HistogramCoder().encode(part)) for part in found]
    cost = Cost(60_000, 20_000, sum(map(len, found)), 2_048, 512, 50 if texts else None)
    header = 144 if texts else 112
    assert 0.7 < (np.mean(sizes) - header) / cost.elements["groups"] < 1
    assert max(sizes) < 2 * cost.elements["groups"]  # groups of 45 keys differ much, and those of 10^5 hardly

    def kept(p: beam.Pipeline) -> beam.PCollection:
        return p | beam.Create([table]) | BoundContributions(bounding, 2, keep=True)

    if texts:
        rows = [len(ContributionsCoder().encode(part)) for _, part in collect(kept)]
        assert 0.5 < max(rows) / replace(cost, shards=2).elements["users, with states of their keys"] < 1.05
